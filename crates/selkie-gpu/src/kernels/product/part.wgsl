// What a part of a matrix's row, eight numbers or a group of 32, adds to its product with part `at` of one row in f32, which is read as
// `quad_of_x`. ROW_COLS are the matrix's values in a row, where they are not p.cols; PARTS is how many parts a row has.
#if !ROW_COLS
#define ROW_COLS p.cols
#endif
#if FORMAT_FLOAT
fn part(base: u32, i: u32, at: u32) -> f32 {
    let w = octet(base, i);
    return dot(w.lo, quad_of_x(2u * at)) + dot(w.hi, quad_of_x(2u * at + 1u));
}
#define PARTS ((ROW_COLS + 7u) / 8u)
#else
fn part(base: u32, g: u32, at: u32) -> f32 {
    let w = group(base, ROW_COLS / 32u, g);
    var lo = 0.0;
    var hi = 0.0;
    var all_lo = vec4<f32>();
    var all_hi = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let xl = quad_of_x(at * 8u + i);
        let xh = quad_of_x(at * 8u + 4u + i);
        lo += dot(vec4<f32>(unpack4xI8(w.lo[i])), xl);
        hi += dot(vec4<f32>(unpack4xI8(w.hi[i])), xh);
#if FORMAT_OFFSETS
        all_lo += xl;
        all_hi += xh;
#endif
    }
    var sum = w.d.x * lo + w.d.y * hi;
#if FORMAT_OFFSETS
    sum += w.m.x * dot(all_lo, vec4<f32>(1.0)) + w.m.y * dot(all_hi, vec4<f32>(1.0));
#endif
    return sum;
}
#define PARTS (ROW_COLS / 32u)
#endif
