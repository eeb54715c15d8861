// Planes of a row: 32 nibbles a group; half-precision scale and minimum a group.
#include "quant/group.wgsl"
#define FORMAT_OFFSETS

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let scales = halves(weights[row + 4u * groups + g]);
    return Group(low_nibbles(words), high_nibbles(words), scales.xx, scales.yy);
}
