// Head by head, a's values and then b's.
#include "kernels/common.wgsl"

struct Params {
    width: u32, // of the output
    a_dim: u32, // of a head
    b_dim: u32,
    a_offset: u32,
    a_stride: u32,
    b_offset: u32,
    b_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_A) var<storage, read> a: array<f32>; // [rows, n_heads, a_dim]
@group(0) @binding(B_B) var<storage, read> b: array<f32>; // [rows, n_heads, b_dim]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_heads, a_dim + b_dim]

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
    let head = i / (p.a_dim + p.b_dim);
    let channel = i % (p.a_dim + p.b_dim);
    let to = p.out_offset + row * p.out_stride + i;
    if channel < p.a_dim {
        out[to] = a[p.a_offset + row * p.a_stride + head * p.a_dim + channel];
    } else {
        out[to] = b[p.b_offset + row * p.b_stride + head * p.b_dim + channel - p.a_dim];
    }
}
