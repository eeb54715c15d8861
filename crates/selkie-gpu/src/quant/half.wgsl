// Half-precision numbers.

// The two half-precision numbers of a word, the lower one first; infinities are none.
fn halves(word: u32) -> vec2<f32> {
#if FAST_HALVES
    return unpack2x16float(word);
#else
    // Devices may read subnormal halves as zero, and small scales are subnormal. FAST_HALVES is for devices that do
    // not.
    let bits = vec2(word, word >> 16u);
    let normal = bitcast<vec2<f32>>(((bits & vec2(0x7fffu)) << vec2(13u)) + vec2(112u << 23u));
    let subnormal = vec2<f32>(bits & vec2(0x3ffu)) * 0x1p-24f;
    let magnitude = select(normal, subnormal, (bits & vec2(0x7c00u)) == vec2(0u));
    return bitcast<vec2<f32>>(bitcast<vec2<u32>>(magnitude) | ((bits & vec2(0x8000u)) << vec2(16u)));
#endif
}
