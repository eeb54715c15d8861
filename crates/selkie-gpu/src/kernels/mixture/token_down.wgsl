// The last products of a token's experts and their sum: out[r] = residual[r] + add_scale * sum over slots of weight * down[e, r] .
// hidden[slot]. LANES invocations go down the rows of all its experts.
#include "kernels/common.wgsl"

struct Params {
    first: u32, // the stack's row that the chunk starts with
    rows: u32, // the chunk's rows
    row_words: u32,
    per_group: u32, // rows of a workgroup
    d_model: u32,
    d_ff: u32,
    x_offset: u32, // of what the experts made
    parts: u32, // from an expert's to the next
    out_offset: u32,
    residual_offset: u32,
    add_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [d_model]
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
#define ROW_COLS p.d_ff
#include "kernels/product/lanes.wgsl"

var<workgroup> experts: array<u32, USED>;
var<workgroup> factors: array<f32, USED>;

// Before what the experts made, x has their numbers and their weights.
fn route(i: u32) -> f32 {
#if ROUNDED_X
    return bitcast<f32>(x[i / 4u][i % 4u]);
#else
    return x[i / 4u][i % 4u];
#endif
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

// Part i of all the experts' rows `at` and `at` + 1, with their weights. What is not in the chunk counts nothing: rows before it are past
// its end.
fn products(at: u32, i: u32) -> vec2<f32> {
    let slot = i / PARTS;
    let own = i % PARTS;
    let row = experts[slot] * p.d_model + at - p.first;
    let there = vec2(row, row + 1u) < vec2(p.rows);
    let base = select(vec2(0u), vec2(row, row + 1u) * p.row_words, there);
    let of_x = slot * p.parts + own;
    let both = vec2(part(base.x, own, of_x), part(base.y, own, of_x));
    return select(vec2(0.0), factors[slot] * both, there);
}

// Of the experts whose rows are in the chunk.
fn biases(at: u32) -> f32 {
    var sum = 0.0;
#if B_BIAS
    for (var slot = 0u; slot < USED; slot++) {
        let row = experts[slot] * p.d_model + at;
        sum += select(0.0, factors[slot] * bias[row], row - p.first < p.rows);
    }
#endif
    return sum;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if thread < USED {
        experts[thread] = u32(route(thread));
        factors[thread] = route(USED + thread);
    }
    workgroupBarrier();
    let lane = thread % LANES;
    let first = group_index(id, n) * p.per_group;
    let parts = USED * PARTS;
    for (var r = 0u; r < p.per_group; r += 2u * (THREADS / LANES)) {
        let at = first + r + 2u * (thread / LANES);
        let has_odd = at + 1u < p.d_model;
        var sums = vec2<f32>();
        var i = select(parts, lane, at < p.d_model);
        // Two steps at once: more reads are on their way.
        for (; i + LANES < parts; i += 2u * LANES) {
            let a = products(at, i);
            let b = products(at, i + LANES);
            sums += a + b;
        }
        if i < parts {
            sums += products(at, i);
        }
        let even = together(thread, sums.x);
        let odd = together(thread, sums.y);
        if lane == 0u && at < p.d_model {
            store(at, even + biases(at));
            if has_odd {
                store(at + 1u, odd + biases(at + 1u));
            }
        }
    }
}
