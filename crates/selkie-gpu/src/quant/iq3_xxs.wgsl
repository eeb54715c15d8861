// Planes of a row: three words a group: eight row numbers; four times 7 bits of signs and a 4-bit scale on top; a
// half-precision scale for 8 groups.
#include "quant/signs.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = row + 3u * g;
    let word = weights[at + 2u];
    let first = even_signs(word) | (even_signs(word >> 7u) << 8u);
    let second = even_signs(word >> 14u) | (even_signs(word >> 21u) << 8u);
    let lo = with_signs(short_rows(bytes(weights[at])), first);
    let hi = with_signs(short_rows(bytes(weights[at + 1u])), second);
    let d = half_at(row + 3u * groups, g >> 3u) * 2.0 * nibble_scales(word >> 28u).x;
    return Group(lo, hi, vec2(d), vec2(0.0));
}
