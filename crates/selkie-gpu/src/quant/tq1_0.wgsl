// Planes of a row: 13 words for 8 groups, each four bytes of five (the last: four) digits in base 3; a half-precision
// scale for 8 groups.
//
// A byte is a fraction, scaled to 256: multiplying by 3 brings digit after digit above the point. Digit n of the four
// bytes of word j is the four values (one more than the value) that begin at 4 (5 j + n).
#include "quant/group.wgsl"

// The values 4 o .. 4 o + 4 of eight groups, whose words begin at `words`, for four `o`.
fn digits(words: u32, o: vec4<u32>) -> vec4<u32> {
    let j = o / vec4(5u);
    let n = o - vec4(5u) * j;
    let stored = vec4(weights[words + j.x], weights[words + j.y], weights[words + j.z], weights[words + j.w]);
    // 3 to the n: 1, 3, 9, 27 in the bytes of a word, and 81.
    let power = select((vec4(0x1b090301u) >> ((n & vec4(3u)) << vec4(3u))) & vec4(0xffu), vec4(81u), n == vec4(4u));
    let fractions = vec4(0x00ff00ffu);
    let even = ((((stored & fractions) * power) & fractions) * 3u) >> vec4(8u);
    let odd = ((((stored >> vec4(8u)) & fractions) * power) & fractions) * 3u;
    let digits = (even & vec4(0x00030003u)) | (odd & vec4(0x03000300u));
    // One less, byte by byte: no byte borrows from the next while 128 is added.
    return (digits + vec4(0x7f7f7f7fu)) ^ vec4(0x80808080u);
}

fn group(row: u32, groups: u32, g: u32) -> Group {
    let words = row + 13u * (g >> 3u);
    let o = vec4(8u * (g & 7u)) + vec4(0u, 1u, 2u, 3u);
    let d = half_at(row + 13u * (groups >> 3u), g >> 3u);
    return Group(digits(words, o), digits(words, o + vec4(4u)), vec2(d), vec2(0.0));
}
