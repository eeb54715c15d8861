// Values -1, 0, 1 and 2.
#include "quant/group.wgsl"

// The 32 values whose pairs of bits (two's complement of what is the value, negated, since that is -2 .. 1) are at
// `words`. They stay at the top of their bytes, where their sign is the byte's: -64 times the value.
fn negated_pairs(words: u32, scale: f32) -> Group {
    return Group(high_pairs(weights[words]), high_pairs(weights[words + 1u]), vec2(scale * -0.015625), vec2(0.0));
}
