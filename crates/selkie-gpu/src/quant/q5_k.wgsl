// Planes of a row: 32 nibbles a group; 32 fifth bits a group; scales as in k.wgsl.
#include "quant/k.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = weights4[(row >> 2u) + g];
    let bits = vec4(weights[row + 4u * groups + g]);
    let fifth = vec4(0x10101010u);
    let lo = low_nibbles(words) | ((bits << vec4(4u, 3u, 2u, 1u)) & fifth);
    let hi = high_nibbles(words) | ((bits >> vec4(0u, 1u, 2u, 3u)) & fifth);
    let scales = k_scales(row + 5u * groups, groups, g);
    return Group(lo, hi, scales.xx, scales.yy);
}
