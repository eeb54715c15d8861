// Magnitudes from grids, and their signs.
#include "quant/group.wgsl"

// Four words of magnitudes, none of them 0, negative where the lowest 16 bits of `signs` are set.
fn with_signs(magnitudes: vec4<u32>, signs: u32) -> vec4<u32> {
    let four = (vec4(signs) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
    // Bit i goes to byte i, and makes 0xff of it.
    let negative = (four * 0x00204081u) & vec4(0x01010101u);
    return (magnitudes ^ (negative * 255u)) + negative;
}

// The eight signs of a 7-bit number: the eighth makes their count even.
fn even_signs(bits: u32) -> u32 {
    let low = bits & 0x7fu;
    return low | ((countOneBits(low) & 1u) << 7u);
}

// Rows a and b, of eight magnitudes each.
fn long_rows(a: u32, b: u32) -> vec4<u32> {
    let first = GRID + 2u * a;
    let second = GRID + 2u * b;
    return vec4(grids[first], grids[first + 1u], grids[second], grids[second + 1u]);
}

// Rows of four magnitudes each.
fn short_rows(rows: vec4<u32>) -> vec4<u32> {
    return vec4(grids[GRID + rows.x], grids[GRID + rows.y], grids[GRID + rows.z], grids[GRID + rows.w]);
}

// The bytes of a word.
fn bytes(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu);
}

// The scales of the two nibbles of a byte: (0.5 + nibble) / 4.
fn nibble_scales(byte: u32) -> vec2<f32> {
    let nibbles = vec2<f32>((vec2(byte) >> vec2(0u, 4u)) & vec2(15u));
    return (nibbles + vec2(0.5)) * 0.25;
}
