// Scales of Q4_K and Q5_K: a byte of scale and a byte of minimum a group at word `plane`; after those of all groups,
// half-precision scale and scale of the minima for 8 groups.
#include "quant/group.wgsl"
#define FORMAT_OFFSETS

// Scale and offset of group g.
fn k_scales(plane: u32, groups: u32, g: u32) -> vec2<f32> {
    let bytes = u16_at(plane, g);
    let scales = halves(weights[plane + (groups >> 1u) + (g >> 3u)]);
    return scales * vec2(1.0, -1.0) * vec2<f32>(vec2(bytes & 0xffu, bytes >> 8u));
}
