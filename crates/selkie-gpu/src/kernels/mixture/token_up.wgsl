// The first products of a token's experts: hidden[slot, i] = gating(gate[e, i] . input, up[e, i] . input) for the experts e
// that the router chose, in ascending order. Each workgroup routes for itself, which costs less than a dispatch; workgroup 0
// does nothing else and writes down the experts and their weights.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32,
    first: u32, // the stack's row that the chunk starts with
    rows: u32, // the chunk's rows
    row_words: u32,
    expert_rows: u32,
    per_group: u32, // rows of a workgroup
    per_slot: u32, // workgroups of an expert
    x_offset: u32,
    group: u32,
    before_offset: u32,
    after_offset: u32,
    eps: f32,
    scale: f32,
    before_c: f32,
    after_c: f32,
    write_routes: u32,
    hidden_offset: u32,
    hidden_stride: u32,
    d_ff: u32,
    gate_bias: u32,
    up_bias: u32,
    alpha: f32,
    limit: f32,
    route_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_HIDDEN) var<storage, read_write> hidden: array<f32>; // [USED] experts, [USED] weights, [USED, d_ff]
@group(0) @binding(B_SCORES) var<storage, read> scores: array<f32>; // [EXPERTS]
#if B_SMALL
@group(0) @binding(B_SMALL) var<storage, read> small: array<f32>; // biases
#endif
#if B_GATES
@group(0) @binding(B_GATES) var<storage, read> gates: array<f32>; // as hidden
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#include "kernels/product/lanes.wgsl"
#include "kernels/mixture/route.wgsl"
#include "kernels/mixture/gating.wgsl"

fn score(e: u32) -> f32 {
    return scores[e];
}

#if CHOICE_BIAS
fn choice_bias(e: u32) -> f32 {
    return small[e];
}
#endif

fn store(slot: u32, e: u32, i: u32, sum: f32, second: f32) {
    let at = p.hidden_offset + slot * p.hidden_stride + i;
#if STAGE == pairs
    hidden[at] = gating(gate_with_bias(e, i, sum), up_with_bias(e, i, second));
#elif STAGE == gates
    hidden[at] = gate_with_bias(e, i, sum);
#elif STAGE == gated
    hidden[at] = gating(gates[at], up_with_bias(e, i, sum));
#else
    hidden[at] = gating(up_with_bias(e, i, sum), 1.0);
#endif
    // Whoever reads whole parts finds zeros.
    if i + 1u == p.d_ff {
        for (var j = p.d_ff; j < p.hidden_stride; j++) {
            hidden[at - i + j] = 0.0;
        }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(id, n);
    choose(thread);
    if index == 0u {
        let weight = weigh(thread);
        if p.write_routes != 0u && thread < USED {
            hidden[thread] = f32(chosen[thread]);
            hidden[USED + thread] = weight;
        }
        return;
    }
    let slot = (index - 1u) / p.per_slot;
    if slot >= USED {
        return;
    }
    let e = workgroupUniformLoad(&chosen[slot]);
#if MAKES_INPUT
    make_input(thread);
#endif
    let first = (index - 1u) % p.per_slot * p.per_group;
    let lane = thread % LANES;
    // Two rows are an invocation's: in turns they are a gate and its up.
    for (var r = 0u; r < p.per_group; r += 2u * (THREADS / LANES)) {
        let at = first + r + 2u * (thread / LANES);
        // The row in the chunk; past its end also where the expert's row is before the chunk.
        let row = e * p.expert_rows + at - p.first;
        let has_even = at < p.expert_rows && row < p.rows;
        let has_odd = at + 1u < p.expert_rows && row + 1u < p.rows;
        let even_base = select(0u, row, has_even) * p.row_words;
        let odd_base = select(0u, row + 1u, has_odd) * p.row_words;
        var even = 0.0;
        var odd = 0.0;
        var i = lane;
        // Two steps at once: more reads are on their way.
        for (; i + LANES < PARTS; i += 2u * LANES) {
            let next = i + LANES;
            let a = part(even_base, i, i);
            let b = part(odd_base, i, i);
            let c = part(even_base, next, next);
            let d = part(odd_base, next, next);
            even += a + c;
            odd += b + d;
        }
        if i < PARTS {
            even += part(even_base, i, i);
            odd += part(odd_base, i, i);
        }
        even = together(thread, even);
        odd = together(thread, odd);
        if lane == 0u {
#if STAGE == pairs
            if has_even {
                store(slot, e, at / 2u, even, odd);
            }
#else
            if has_even {
                store(slot, e, at, even, 0.0);
            }
            if has_odd {
                store(slot, e, at + 1u, odd, 0.0);
            }
#endif
        }
    }
}
