// Planes of a row: two words a group: four row numbers; four times 7 bits of signs and a 4-bit scale on top; a
// half-precision scale for 8 groups.
#include "quant/signs.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = row + 2u * g;
    let rows = bytes(weights[at]);
    let word = weights[at + 1u];
    let lo = with_signs(long_rows(rows.x, rows.y), even_signs(word) | (even_signs(word >> 7u) << 8u));
    let hi = with_signs(long_rows(rows.z, rows.w), even_signs(word >> 14u) | (even_signs(word >> 21u) << 8u));
    let d = half_at(row + 2u * groups, g >> 3u) * nibble_scales(word >> 28u).x;
    return Group(lo, hi, vec2(d), vec2(0.0));
}
