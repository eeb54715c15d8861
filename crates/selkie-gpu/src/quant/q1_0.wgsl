// Planes of a row: 32 bits a group (set: -1); a half-precision scale for 4 groups.
#include "quant/group.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let bits = vec4(weights[row + g]);
    // 0x40 and 0xc0: 64 times 1 and -1.
    let sign = vec4(0x80808080u);
    let one = vec4(0x40404040u);
    let lo = ((bits << vec4(7u, 6u, 5u, 4u)) & sign) | one;
    let hi = ((bits << vec4(3u, 2u, 1u, 0u)) & sign) | one;
    return Group(lo, hi, vec2(half_at(row + groups, g >> 2u) * 0.015625), vec2(0.0));
}
