// Planes of a row: four words of bits a group, as in iq4.wgsl; a half-precision scale a group.
#include "quant/iq4.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let q = uneven(weights4[(row >> 2u) + g]);
    return Group(q.lo, q.hi, vec2(half_at(row + 4u * groups, g)), vec2(0.0));
}
