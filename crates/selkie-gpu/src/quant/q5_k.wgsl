// Planes of a row: 32 nibbles a group; 32 fifth bits a group; scales as in k.wgsl.
#include "quant/k.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let q = five_bits(weights4[(row >> 2u) + g], weights[row + 4u * groups + g]);
    let scales = k_scales(row + 5u * groups, groups, g);
    return Group(q.lo, q.hi, scales.xx, scales.yy);
}
