// Planes of a row: 32 nibbles (q - 8 in two's complement) a group; a half-precision scale a group.
#include "quant/group.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    // Nibbles stay at the top of their bytes, where their sign is the byte's: 16 times the value.
    let top = vec4(0xf0f0f0f0u);
    let d = half_at(row + 4u * groups, g) * 0.0625;
    return Group((words << vec4(4u)) & top, words & top, vec2(d), vec2(0.0));
}
