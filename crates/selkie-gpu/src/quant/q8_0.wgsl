// Planes of a row: 32 signed bytes a group; a half-precision scale a group.
#include "quant/group.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = (row >> 2u) + 2u * g;
    return Group(weights4[at], weights4[at + 1u], vec2(half_at(row + 8u * groups, g)), vec2(0.0));
}
