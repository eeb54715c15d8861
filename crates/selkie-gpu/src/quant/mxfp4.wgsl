// Planes of a row: four words of bits a group, as in fp4.wgsl; a byte a group, the exponent of its scale.
#include "quant/fp4.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let q = fp4(weights4[(row >> 2u) + g]);
    let exponent = u8_at(row + 4u * groups, g);
    // 2^(exponent - 128), for values are doubled. The two smallest are subnormal.
    let d = bitcast<f32>(select((exponent - 1u) << 23u, 0x00200000u << exponent, exponent < 2u));
    return Group(q.lo, q.hi, vec2(d), vec2(0.0));
}
