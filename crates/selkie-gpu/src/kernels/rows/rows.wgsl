// out = residual + add_scale * input, row by row: norms, gates, scales and sums that stand alone.
#include "kernels/common.wgsl"

struct Params {
    width: u32,
    group: u32,
    x_offset: u32,
    x_stride: u32,
    before_offset: u32,
    before_stride: u32,
    after_offset: u32,
    after_stride: u32,
    residual_offset: u32,
    residual_stride: u32,
    out_offset: u32,
    out_stride: u32,
    eps: f32,
    scale: f32,
    add_scale: f32,
    before_c: f32,
    after_c: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, width]
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, width]
#if B_JOINED
@group(0) @binding(B_JOINED) var<storage, read> joined: array<f32>; // [rows, what is behind x]
#endif
#if B_BEFORE
@group(0) @binding(B_BEFORE) var<storage, read> before: array<f32>; // [rows, width] or [rows, 1]
#endif
#if B_AFTER
@group(0) @binding(B_AFTER) var<storage, read> after: array<f32>; // [rows, width] or [rows, 1]
#endif
#if B_NORM_WEIGHT
@group(0) @binding(B_NORM_WEIGHT) var<storage, read> norm_weight: array<f32>; // [width] or [group]
#endif
#if B_RESIDUAL
@group(0) @binding(B_RESIDUAL) var<storage, read> residual: array<f32>; // [rows, width]
#endif
#include "kernels/input.wgsl"

fn store(row: u32, i: u32, y: f32) {
    let at = p.out_offset + row * p.out_stride + i;
#if B_RESIDUAL
    out[at] = residual[p.residual_offset + row * p.residual_stride + i] + p.add_scale * y;
#elif ADD
    out[at] = out[at] + p.add_scale * y;
#else
    out[at] = y;
#endif
}

#if NORM
const THREADS = 128u;
var<workgroup> sums: array<f32, THREADS>;

// A workgroup for each row and group.
@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let groups = p.width / p.group;
    let which = group_index(id, n);
    let row = which / groups;
    let first = which % groups * p.group;
    if row >= step.ROWS {
        return;
    }
    var sum = 0.0;
    for (var i = lane; i < p.group; i += THREADS) {
        let v = gated(row, first + i);
        sum += v * v;
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if lane < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    let factor = 1.0 / sqrt(sums[0] / f32(p.group) + p.eps);
    for (var i = lane; i < p.group; i += THREADS) {
        store(row, first + i, finish(row, first + i, gated(row, first + i), factor));
    }
}
#else
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
    if row >= step.ROWS || i >= p.width {
        return;
    }
    store(row, i, finish(row, i, gated(row, i), 1.0));
}
#endif
