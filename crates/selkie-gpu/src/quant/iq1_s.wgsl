// Planes of a row: the low bytes of four row numbers a group; 16 bits a group: four times 3 upper bits, a 3-bit scale,
// the shift's sign; a half-precision scale for 8 groups.
#include "quant/iq1.wgsl"

fn group(row: u32, groups: u32, g: u32) -> Group {
    let low = vec4(weights[row + g]) >> vec4(0u, 8u, 16u, 24u);
    let plane = row + groups;
    let packed = u16_at(plane, g);
    let upper = ((vec4(packed) >> vec4(0u, 3u, 6u, 9u)) & vec4(7u)) << vec4(8u);
    let rows = (low & vec4(0xffu)) | upper;
    let down = (packed >> 15u) * 3u;
    let d = half_at(plane + (groups >> 1u), g >> 3u) * f32(2u * ((packed >> 12u) & 7u) + 1u) * 0.125;
    return Group(shifted_rows(rows.x, rows.y, down), shifted_rows(rows.z, rows.w, down), vec2(d), vec2(0.0));
}
