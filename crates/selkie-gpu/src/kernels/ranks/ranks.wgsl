// A head's row for each rank times the rank's weights (EXPAND), or the sum over ranks (REDUCE).
#include "kernels/common.wgsl"

struct Params {
    width: u32, // of the output
    head_dim: u32,
    rank: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, n_heads, head_dim], to reduce [rows, n_heads, rank, head_dim]
@group(0) @binding(B_WEIGHT) var<storage, read> weight: array<f32>; // [n_heads, rank, head_dim]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // the other way round

// A thread for each value.
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
    let source = p.x_offset + row * p.x_stride;
#if EXPAND
    let y = weight[i] * x[source + i / (p.rank * p.head_dim) * p.head_dim + channel];
#else
    let start = i / p.head_dim * p.rank * p.head_dim + channel;
    var y = 0.0;
    for (var r = 0u; r < p.rank; r++) {
        y += weight[start + r * p.head_dim] * x[source + start + r * p.head_dim];
    }
#endif
    out[p.out_offset + row * p.out_stride + i] = y;
}
