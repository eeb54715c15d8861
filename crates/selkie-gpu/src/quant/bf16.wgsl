// A row is its values, filled up with zeros to a multiple of 8.

// The four values of two words.
fn upper_halves(words: vec2<u32>) -> vec4<f32> {
    let values = vec4(words << vec2(16u), words & vec2(0xffff0000u));
    return bitcast<vec4<f32>>(values.xzyw);
}

// Values 4 i .. 4 i + 4 of a row.
fn quad(row: u32, i: u32) -> vec4<f32> {
    let at = row + 2u * i;
    return upper_halves(vec2(weights[at], weights[at + 1u]));
}

// Values 8 i .. 8 i + 8 of a row, in one read.
struct Octet { lo: vec4<f32>, hi: vec4<f32> }
fn octet(row: u32, i: u32) -> Octet {
    let words = weights4[(row >> 2u) + i];
    return Octet(upper_halves(words.xy), upper_halves(words.zw));
}
