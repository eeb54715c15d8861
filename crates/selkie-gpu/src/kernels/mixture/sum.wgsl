// out = residual + add_scale * sum over a row's choices of weight * y, in ascending order of experts. A thread for each value.
#include "kernels/common.wgsl"

struct Params {
    first_row: u32,
    most_rows: u32,
    d_model: u32,
    out_offset: u32,
    out_stride: u32,
    residual_offset: u32,
    residual_stride: u32,
    add_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, d_model]
@group(0) @binding(B_Y) var<storage, read> y: array<f32>; // [rows, USED, d_model]
@group(0) @binding(B_FACTORS) var<storage, read> factors: array<f32>; // [rows, USED]
#if B_RESIDUAL
@group(0) @binding(B_RESIDUAL) var<storage, read> residual: array<f32>; // [rows, d_model]
#endif

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let per_row = (p.d_model + 127u) / 128u;
    let which = group_index(id, n);
    let own = which / per_row;
    let row = p.first_row + own;
    let i = which % per_row * 128u + thread;
    if own >= p.most_rows || row >= step.ROWS || i >= p.d_model {
        return;
    }
    var sum = 0.0;
    for (var k = own * USED; k < (own + 1u) * USED; k++) {
        sum += factors[k] * y[k * p.d_model + i];
    }
#if B_RESIDUAL
    sum = residual[p.residual_offset + row * p.residual_stride + i] + p.add_scale * sum;
#endif
    out[p.out_offset + row * p.out_stride + i] = sum;
}
