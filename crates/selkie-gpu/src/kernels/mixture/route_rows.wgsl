// The experts of each row and their weights. A workgroup for a row.
#include "kernels/common.wgsl"

struct Params {
    first_row: u32,
    most_rows: u32,
    scores_stride: u32,
    route_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_SCORES) var<storage, read> scores: array<f32>; // [rows, scores_stride]
#if CHOICE_BIAS
@group(0) @binding(B_SMALL) var<storage, read> small: array<f32>; // [EXPERTS]
#endif
@group(0) @binding(B_CHOICES) var<storage, read_write> choices: array<u32>; // [rows, USED]
@group(0) @binding(B_FACTORS) var<storage, read_write> factors: array<f32>; // [rows, USED]

const THREADS = 128u;
var<workgroup> partial: array<f32, THREADS>;
var<private> row: u32;
#include "kernels/mixture/route.wgsl"

fn score(e: u32) -> f32 {
    return scores[row * p.scores_stride + e];
}

#if CHOICE_BIAS
fn choice_bias(e: u32) -> f32 {
    return small[e];
}
#endif

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let own = group_index(id, n);
    row = p.first_row + own;
    if own >= p.most_rows || p.first_row + own >= step.ROWS {
        return;
    }
    choose(thread);
    let weight = weigh(thread);
    if thread < USED {
        choices[own * USED + thread] = chosen[thread];
        factors[own * USED + thread] = weight;
    }
}
