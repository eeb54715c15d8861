// Planes of a row: four words of bits a group, as in fp4.wgsl; two bytes of scales a group: 4 bits of exponent (bias
// 7), 3 of mantissa.
#include "quant/fp4.wgsl"
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let q = fp4(weights4[(row >> 2u) + g]);
    let scales = (vec2(u16_at(row + 4u * groups, g)) >> vec2(0u, 8u)) & vec2(0x7fu);
    let exponent = scales >> vec2(3u);
    let mantissa = scales & vec2(7u);
    // Half of it, for values are doubled: (1 + mantissa / 8) * 2^(exponent - 8), without the 1 where the exponent is 0.
    let eighths = vec2<f32>(select(mantissa + vec2(8u), mantissa, exponent == vec2(0u)));
    let power = bitcast<vec2<f32>>((max(exponent, vec2(1u)) + vec2(127u - 11u)) << vec2(23u));
    return Group(q.lo, q.hi, eighths * power, vec2(0.0));
}
