// Planes of a row: four words of bits a group, as in iq4.wgsl; a signed byte of scale a group; a half-precision scale
// for 8 groups.
#include "quant/iq4.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let q = uneven(weights4[(row >> 2u) + g]);
    let scales = row + 4u * groups;
    let d = half_at(scales + (groups >> 2u), g >> 3u) * signed_pair(u8_at(scales, g)).x;
    return Group(q.lo, q.hi, vec2(d), vec2(0.0));
}
