// Planes of a row: 32 pairs of bits a group; two bytes a group, each a scale below and a minimum above; half-precision
// scale and scale of the minima for 8 groups.
#include "quant/group.wgsl"
#define FORMAT_OFFSETS
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let pairs = row + 2u * g;
    let scales = row + 2u * groups;
    let nibbles = vec4<f32>((vec4(u16_at(scales, g)) >> vec4(0u, 8u, 4u, 12u)) & vec4(15u));
    let d = halves(weights[scales + (groups >> 1u) + (g >> 3u)]);
    return Group(low_pairs(weights[pairs]), low_pairs(weights[pairs + 1u]), d.x * nibbles.xy, -d.y * nibbles.zw);
}
