// Planes of a row: 32 nibbles a group; scales as in k.wgsl.
#include "quant/k.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let scales = k_scales(row + 4u * groups, groups, g);
    return Group(low_nibbles(words), high_nibbles(words), scales.xx, scales.yy);
}
