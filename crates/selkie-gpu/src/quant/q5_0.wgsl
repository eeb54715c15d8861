// Planes of a row: 32 low nibbles a group; 32 fifth bits a group (of q - 16 in two's complement); a half-precision
// scale a group.
#include "quant/group.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let bits = vec4(weights[row + 4u * groups + g]);
    // The five bits stay at the top of their bytes, where their sign is the byte's: eight times the value.
    let low = vec4(0x78787878u);
    let fifth = vec4(0x80808080u);
    let lo = ((words << vec4(3u)) & low) | ((bits << vec4(7u, 6u, 5u, 4u)) & fifth);
    let hi = ((words >> vec4(1u)) & low) | ((bits << vec4(3u, 2u, 1u, 0u)) & fifth);
    return Group(lo, hi, vec2(half_at(row + 5u * groups, g) * 0.125), vec2(0.0));
}
