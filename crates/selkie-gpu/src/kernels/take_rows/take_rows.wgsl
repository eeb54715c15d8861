// The rows whose output is wanted.
#include "kernels/common.wgsl"

struct Params {
    width: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, width]
@group(0) @binding(B_OUTPUTS) var<storage, read> outputs: array<u32>; // [outputs]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [outputs, width]

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
    if row < step.outputs && i < p.width {
        out[p.out_offset + row * p.out_stride + i] = x[p.x_offset + outputs[row] * p.x_stride + i];
    }
}
