// Planes of a row: three words a group: the low bytes of eight row numbers; 32 signs; a byte a group, the row numbers'
// ninth bits; a 4-bit scale a group; a half-precision scale for 8 groups.
#include "quant/signs.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let at = row + 3u * g;
    let signs = weights[at + 2u];
    let plane = row + 3u * groups;
    let ninth = vec4(u8_at(plane, g));
    let scales = plane + (groups >> 2u);
    let lo_rows = bytes(weights[at]) | ((ninth << vec4(8u, 7u, 6u, 5u)) & vec4(0x100u));
    let hi_rows = bytes(weights[at + 1u]) | ((ninth << vec4(4u, 3u, 2u, 1u)) & vec4(0x100u));
    let lo = with_signs(short_rows(lo_rows), signs);
    let hi = with_signs(short_rows(hi_rows), signs >> 16u);
    let scale = (weights[scales + (g >> 3u)] >> ((g & 7u) << 2u)) & 15u;
    let d = half_at(scales + (groups >> 3u), g >> 3u) * f32(1u + 2u * scale);
    return Group(lo, hi, vec2(d), vec2(0.0));
}
