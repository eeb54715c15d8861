// Planes of a row: two words a group, four u16 with a 9-bit row number and 7 bits of signs; a byte a group, two 4-bit
// scales; a half-precision scale for 8 groups.
#include "quant/signs.wgsl"
#define FORMAT_HALVES

// The values of two rows.
fn two_rows(word: u32) -> vec4<u32> {
    let signs = even_signs(word >> 9u) | (even_signs(word >> 25u) << 8u);
    return with_signs(long_rows(word & 511u, (word >> 16u) & 511u), signs);
}

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = row + 2u * g;
    let scales = row + 2u * groups;
    let d = half_at(scales + (groups >> 2u), g >> 3u) * nibble_scales(u8_at(scales, g));
    return Group(two_rows(weights[at]), two_rows(weights[at + 1u]), d, vec2(0.0));
}
