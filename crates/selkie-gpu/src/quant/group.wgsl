// What block formats unpack to, and how scales are read.
#include "quant/half.wgsl"

// 32 consecutive weights of a row: weight i = d * q + m with q a signed byte, four to a word, in order.
// lo: weights 0..16 with d.x and m.x, hi: weights 16..32 with d.y and m.y.
struct Group { lo: vec4<u32>, hi: vec4<u32>, d: vec2<f32>, m: vec2<f32> }

// The half-precision number i of those that begin at word `plane`.
fn half_at(plane: u32, i: u32) -> f32 {
    return halves(u16_at(plane, i)).x;
}

// The 16 bits i of those that begin at word `plane`.
fn u16_at(plane: u32, i: u32) -> u32 {
    return (weights[plane + (i >> 1u)] >> ((i & 1u) << 4u)) & 0xffffu;
}

// The byte i of those that begin at word `plane`.
fn u8_at(plane: u32, i: u32) -> u32 {
    return (weights[plane + (i >> 2u)] >> ((i & 3u) << 3u)) & 0xffu;
}

// The two signed bytes in the lower half of a word.
fn signed_pair(bits: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<vec2<i32>>(vec2(bits << 24u, bits << 16u)) >> vec2(24u));
}

// The lower nibbles of the bytes.
fn low_nibbles(words: vec4<u32>) -> vec4<u32> {
    return words & vec4(0x0f0f0f0fu);
}

// The upper nibbles of the bytes.
fn high_nibbles(words: vec4<u32>) -> vec4<u32> {
    return (words >> vec4(4u)) & vec4(0x0f0f0f0fu);
}

// 32 unsigned bytes, in order.
struct Bytes { lo: vec4<u32>, hi: vec4<u32> }

// Nibbles with their fifth bits.
fn five_bits(nibbles: vec4<u32>, bits: u32) -> Bytes {
    let fifth = vec4(0x10101010u);
    let lo = low_nibbles(nibbles) | ((vec4(bits) << vec4(4u, 3u, 2u, 1u)) & fifth);
    let hi = high_nibbles(nibbles) | ((vec4(bits) >> vec4(0u, 1u, 2u, 3u)) & fifth);
    return Bytes(lo, hi);
}

// 16 values of two bits at the bottom of their bytes.
fn low_pairs(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u);
}

// 16 values of two bits at the top of their bytes.
fn high_pairs(word: u32) -> vec4<u32> {
    return (vec4(word) << vec4(6u, 4u, 2u, 0u)) & vec4(0xc0c0c0c0u);
}
