// The last products of a token's experts and their sum: out[r] = residual[r] + add_scale * sum over slots of weight * down[e, r] .
// hidden[slot]. LANES invocations go down the rows of all its experts.
#include "kernels/common.wgsl"

struct Params {
    first: u32, // the stack's row that the chunk starts with
    rows: u32, // the chunk's rows
    row_words: u32,
    per_group: u32, // rows of a workgroup
    d_model: u32,
    hidden_offset: u32,
    hidden_stride: u32,
    out_offset: u32,
    residual_offset: u32,
    add_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [d_model]
@group(0) @binding(B_HIDDEN) var<storage, read> hidden: array<vec4<f32>>; // [USED] experts, [USED] weights, [USED, COLS]
#if B_RESIDUAL
@group(0) @binding(B_RESIDUAL) var<storage, read> residual: array<f32>; // [d_model]
#endif
#if B_BIAS
@group(0) @binding(B_BIAS) var<storage, read> bias: array<f32>; // [EXPERTS, d_model]
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#include "kernels/product/lanes.wgsl"

var<workgroup> experts: array<u32, USED>;
var<workgroup> factors: array<f32, USED>;

fn quad_of_x(i: u32) -> vec4<f32> {
    return hidden[i];
}

fn store(row: u32, sum: f32) {
    let at = p.out_offset + row;
#if OVER
    out[at] = out[at] + p.add_scale * sum;
#elif B_RESIDUAL
    out[at] = residual[p.residual_offset + row] + p.add_scale * sum;
#else
    out[at] = sum;
#endif
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if thread < USED {
        experts[thread] = u32(hidden[thread / 4u][thread % 4u]);
        let at = USED + thread;
        factors[thread] = hidden[at / 4u][at % 4u];
    }
    workgroupBarrier();
    let lane = thread % LANES;
    let first = group_index(id, n) * p.per_group;
    for (var r = 0u; r < p.per_group; r += THREADS / LANES) {
        let at = first + r + thread / LANES;
        var sum = 0.0;
        for (var i = lane; i < USED * PARTS && at < p.d_model; i += LANES) {
            let slot = i / PARTS;
            let part = i % PARTS;
            // Past the chunk's end also where the expert's row is before the chunk.
            let row = experts[slot] * p.d_model + at - p.first;
            if row < p.rows {
                let of_x = (p.hidden_offset + slot * p.hidden_stride) / 4u + part * QUADS_OF_PART;
                sum += factors[slot] * part_of(row * p.row_words, part, of_x);
            }
        }
        sum = together(thread, sum);
        if lane == 0u && at < p.d_model {
#if B_BIAS
            for (var slot = 0u; slot < USED; slot++) {
                let row = experts[slot] * p.d_model + at;
                sum += select(0.0, factors[slot] * bias[row], row - p.first < p.rows);
            }
#endif
            store(at, sum);
        }
    }
}
