// Planes of a row: 32 nibbles a group; 32 pairs of upper bits a group (of q - 32 in two's complement); two signed
// bytes of scales a group; a half-precision scale for 8 groups.
#include "quant/group.wgsl"
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let upper = row + 4u * groups + 2u * g;
    let scales = row + 6u * groups;
    // The six bits stay at the top of their bytes, where their sign is the byte's: four times the value.
    let low = vec4(0x3c3c3c3cu);
    let lo = ((words << vec4(2u)) & low) | high_pairs(weights[upper]);
    let hi = ((words >> vec4(2u)) & low) | high_pairs(weights[upper + 1u]);
    let d = half_at(scales + (groups >> 1u), g >> 3u) * 0.25;
    return Group(lo, hi, d * signed_pair(u16_at(scales, g)), vec2(0.0));
}
