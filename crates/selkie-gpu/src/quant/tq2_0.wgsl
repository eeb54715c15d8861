// Planes of a row: 32 pairs of bits a group; a half-precision scale for 8 groups.
#include "quant/negated_pairs.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    return negated_pairs(row + 2u * g, half_at(row + 2u * groups, g >> 3u));
}
