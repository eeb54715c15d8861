// A row is its values, filled up with zeros to a multiple of 8.
#include "quant/half.wgsl"

// Values 4 i .. 4 i + 4 of a row.
fn quad(row: u32, i: u32) -> vec4<f32> {
    let at = row + 2u * i;
    return vec4(halves(weights[at]), halves(weights[at + 1u]));
}

// Values 8 i .. 8 i + 8 of a row, in one read.
struct Octet { lo: vec4<f32>, hi: vec4<f32> }
fn octet(row: u32, i: u32) -> Octet {
    let words = weights4[(row >> 2u) + i];
    return Octet(vec4(halves(words.x), halves(words.y)), vec4(halves(words.z), halves(words.w)));
}
