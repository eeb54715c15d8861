// Turns the first channels of every head by its position's angles.
#include "kernels/common.wgsl"

struct Params {
    width: u32,
    head_dim: u32,
    pairs: u32, // pairs of channels that turn
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, width]
@group(0) @binding(B_ANGLES) var<storage, read> angles: array<vec2<f32>>; // [rows, pairs]: cosine, sine
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, width]

// A thread for each channel.
@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let per_row = (p.width + 127u) / 128u;
    let which = group_index(id, n);
    let row = which / per_row;
    let i = which % per_row * 128u + lane;
    if row >= step.rows || i >= p.width {
        return;
    }
    let channel = i % p.head_dim;
    let source = p.x_offset + row * p.x_stride + i;
    let to = p.out_offset + row * p.out_stride + i;
    if channel >= 2u * p.pairs {
        out[to] = x[source];
        return;
    }
#if INTERLEAVED
    let pair = channel / 2u;
    let second = channel % 2u == 1u;
    let other = select(source + 1u, source - 1u, second);
#else
    let second = channel >= p.pairs;
    let pair = select(channel, channel - p.pairs, second);
    let other = select(source + p.pairs, source - p.pairs, second);
#endif
    let angle = angles[(step.input + row) * p.pairs + pair];
    out[to] = x[source] * angle.x + x[other] * select(-angle.y, angle.y, second);
}
