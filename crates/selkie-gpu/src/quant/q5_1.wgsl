// Planes of a row: 32 nibbles a group; 32 fifth bits a group; half-precision scale and minimum a group.
#include "quant/group.wgsl"
#define FORMAT_OFFSETS

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let bits = weights[row + 4u * groups + g];
    let scales = halves(weights[row + 5u * groups + g]);
    let q = five_bits(words, bits);
    return Group(q.lo, q.hi, scales.xx, scales.yy);
}
