// What ranks become again: out[h] = sum over r of out_weight[h, r] * f(gate_weight[h, r] * gate[h]) * x[h, r], x normed over each
// head and rank where there is a norm. WIDE invocations have a head's channels, a workgroup as many heads as that allows.
#include "kernels/common.wgsl"
#include "kernels/functions.wgsl"

struct Params {
    n_heads: u32,
    head_dim: u32,
    x_offset: u32,
    x_stride: u32,
    gate_offset: u32,
    gate_stride: u32,
    out_offset: u32,
    out_stride: u32,
    norm_len: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, n_heads, RANK, head_dim]
@group(0) @binding(B_GATE) var<storage, read> gate: array<f32>; // [rows, n_heads, head_dim]
// [2, n_heads, RANK, head_dim]: of gates, of results; and the norm's [norm_len], which repeats.
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<f32>;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_heads, head_dim]

const THREADS = 256u;
const HEADS_AT_ONCE = THREADS / WIDE;
#if NORM
var<workgroup> sums: array<f32, THREADS>;
var<workgroup> factors: array<f32, HEADS_AT_ONCE * RANK>;

fn make_factors(thread: u32, start: u32, there: bool) {
    for (var r = 0u; r < RANK; r++) {
        var square = 0.0;
        for (var channel = thread % WIDE; there && channel < p.head_dim; channel += WIDE) {
            let v = x[start + r * p.head_dim + channel];
            square += v * v;
        }
        sums[thread] = square;
        workgroupBarrier();
        for (var half = WIDE / 2u; half > 0u; half >>= 1u) {
            if thread % WIDE < half {
                sums[thread] += sums[thread + half];
            }
            workgroupBarrier();
        }
        if thread % WIDE == 0u {
            factors[thread / WIDE * RANK + r] = 1.0 / sqrt(sums[thread] / f32(p.head_dim) + p.eps);
        }
        workgroupBarrier();
    }
}
#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let per_row = (p.n_heads + HEADS_AT_ONCE - 1u) / HEADS_AT_ONCE;
    let which = group_index(id, n);
    let row = which / per_row;
    let head = which % per_row * HEADS_AT_ONCE + thread / WIDE;
    let there = row < step.rows && head < p.n_heads;
    let of_head = head * RANK * p.head_dim;
    let start = p.x_offset + row * p.x_stride + of_head;
#if NORM
    make_factors(thread, start, there);
#endif
    let all = p.n_heads * RANK * p.head_dim;
    for (var channel = thread % WIDE; there && channel < p.head_dim; channel += WIDE) {
        let g = gate[p.gate_offset + row * p.gate_stride + head * p.head_dim + channel];
        var y = 0.0;
        for (var r = 0u; r < RANK; r++) {
            let i = r * p.head_dim + channel;
            var v = x[start + i] * weights[all + of_head + i] * GATE_FN(weights[of_head + i] * g, 0.0);
#if NORM
            v *= factors[thread / WIDE * RANK + r];
#endif
#if NORM_WEIGHT
            v *= weights[2u * all + (of_head + i) % p.norm_len];
#endif
            y += v;
        }
        out[p.out_offset + row * p.out_stride + head * p.head_dim + channel] = y;
    }
}
