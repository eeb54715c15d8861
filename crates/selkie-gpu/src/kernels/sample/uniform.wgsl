// The uniform number of a token, in 2^-32: 24 random bits. Philox4x32-10 (Salmon et al., SC 2011), as `uniform` in
// selkie-model's sampling.
fn uniform_number() -> u32 {
    var counter = vec4<u32>(choice.position, choice.sequence);
    var key = choice.seed;
    for (var i = 0u; i < 10u; i++) {
        let a = product(counter.x, 0xd2511f53u);
        let b = product(counter.z, 0xcd9e8d57u);
        counter = vec4<u32>(b.y ^ counter.y ^ key.x, b.x, a.y ^ counter.w ^ key.y, a.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter.x & 0xffffff00u;
}
