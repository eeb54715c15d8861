// Planes of a row: the low bytes of four row numbers a group; four nibbles a group: 3 upper bits and the shift's sign;
// a byte a group, two 3-bit scales; a half-precision scale for 8 groups.
#include "quant/iq1.wgsl"
#define FORMAT_HALVES

fn group(row: u32, groups: u32, g: u32) -> Group {
    let low = vec4(weights[row + g]) >> vec4(0u, 8u, 16u, 24u);
    let plane = row + groups;
    let packed = u16_at(plane, g);
    let scales = plane + (groups >> 1u);
    let upper = ((vec4(packed) >> vec4(0u, 4u, 8u, 12u)) & vec4(7u)) << vec4(8u);
    let rows = (low & vec4(0xffu)) | upper;
    let lo = shifted_rows(rows.x, rows.y, ((packed >> 3u) & 1u) | ((packed >> 6u) & 2u));
    let hi = shifted_rows(rows.z, rows.w, ((packed >> 11u) & 1u) | ((packed >> 14u) & 2u));
    let small = (vec2(u8_at(scales, g)) >> vec2(0u, 3u)) & vec2(7u);
    let d = half_at(scales + (groups >> 2u), g >> 3u) * 0.125;
    return Group(lo, hi, d * vec2<f32>(2u * small + vec2(1u)), vec2(0.0));
}
