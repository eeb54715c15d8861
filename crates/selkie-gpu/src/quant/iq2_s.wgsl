// Planes of a row: two words a group: the low bytes of four row numbers; 32 signs; two bytes a group: the row numbers'
// upper bits, and two 4-bit scales; a half-precision scale for 8 groups.
#include "quant/signs.wgsl"
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = row + 2u * g;
    let signs = weights[at + 1u];
    let plane = row + 2u * groups;
    let packed = u16_at(plane, g);
    let upper = (vec4(packed) << vec4(8u, 6u, 4u, 2u)) & vec4(0x300u);
    let rows = bytes(weights[at]) | upper;
    let lo = with_signs(long_rows(rows.x, rows.y), signs);
    let hi = with_signs(long_rows(rows.z, rows.w), signs >> 16u);
    let d = half_at(plane + (groups >> 1u), g >> 3u) * nibble_scales(packed >> 8u);
    return Group(lo, hi, d, vec2(0.0));
}
