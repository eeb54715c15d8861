// Planes of a row: 32 pairs of low bits a group; 32 third bits a group (of q - 4 in two's complement); two signed
// bytes of scales a group; a half-precision scale for 8 groups.
#include "quant/group.wgsl"
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let pairs = row + 2u * g;
    let scales = row + 3u * groups;
    let bits = vec4(weights[row + 2u * groups + g]);
    // The three bits stay at the top of their bytes, where their sign is the byte's: 32 times the value.
    let third = vec4(0x80808080u);
    let lo = (high_pairs(weights[pairs]) >> vec4(1u)) | ((bits << vec4(7u, 6u, 5u, 4u)) & third);
    let hi = (high_pairs(weights[pairs + 1u]) >> vec4(1u)) | ((bits << vec4(3u, 2u, 1u, 0u)) & third);
    let d = half_at(scales + (groups >> 1u), g >> 3u) * 0.03125;
    return Group(lo, hi, d * signed_pair(u16_at(scales, g)), vec2(0.0));
}
