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
    gates_offset: u32,
    gates_stride: u32,
    d_ff: u32,
    gate_bias: u32,
    up_bias: u32,
    alpha: f32,
    limit: f32,
    route_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
// [USED] experts, [USED] weights, [USED, d_ff]: values, or (ROUND) groups of 32 of them in 12 words as input8.wgsl has them.
#if ROUND
@group(0) @binding(B_HIDDEN) var<storage, read_write> hidden: array<u32>;
#else
@group(0) @binding(B_HIDDEN) var<storage, read_write> hidden: array<f32>;
#endif
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

#if STAGE == pairs
const STEP = 2u; // rows of a value
#else
const STEP = 1u;
#endif

// Value i of an expert, from its row's sum, and the next row's where rows come in turns.
fn value_of(slot: u32, e: u32, i: u32, sum: f32, second: f32) -> f32 {
#if STAGE == pairs
    return gating(gate_with_bias(e, i, sum), up_with_bias(e, i, second));
#elif STAGE == gates
    return gate_with_bias(e, i, sum);
#elif STAGE == gated
    return gating(gates[p.gates_offset + slot * p.gates_stride + i], up_with_bias(e, i, sum));
#else
    return gating(up_with_bias(e, i, sum), 1.0);
#endif
}

#if ROUND
#include "kernels/product/round.wgsl"

const AT_ONCE = 2u * (THREADS / LANES) / STEP; // values
const FLUSH = max(32u, AT_ONCE); // values after which they are rounded and stored: whole groups of 32
var<workgroup> results: array<f32, FLUSH>;

fn flush(thread: u32, slot: u32, e: u32, first: u32) {
    workgroupBarrier();
    let at = thread % (FLUSH / 4u) * 4u;
    let v = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
    let r = rounded_quad(thread, v);
    let i = first + thread / 8u * 32u;
    // Experts are whole in a chunk.
    if thread < FLUSH / 4u && i < p.d_ff && e * p.expert_rows - p.first < p.rows {
        let to = p.hidden_offset + slot * p.hidden_stride + i / 32u * 12u;
        let within = thread % 8u;
        hidden[to + within] = r.quad;
        if within == 0u {
            hidden[to + 8u] = bitcast<u32>(r.scale);
            hidden[to + 9u] = bitcast<u32>(r.sum);
        } else if within == 4u {
            hidden[to + 10u] = bitcast<u32>(r.sum);
        }
    }
    workgroupBarrier();
}
#else
fn store(slot: u32, i: u32, v: f32) {
    let at = p.hidden_offset + slot * p.hidden_stride + i;
    hidden[at] = v;
    // Whoever reads whole parts finds zeros.
    if i + 1u == p.d_ff {
        for (var j = p.d_ff; j < p.hidden_stride; j++) {
            hidden[at - i + j] = 0.0;
        }
    }
}
#endif

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
#if ROUND
            hidden[thread] = bitcast<u32>(f32(chosen[thread]));
            hidden[USED + thread] = bitcast<u32>(weight);
#else
            hidden[thread] = f32(chosen[thread]);
            hidden[USED + thread] = weight;
#endif
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
        let i_even = at / STEP;
        var v_even = 0.0;
        var v_odd = 0.0;
        if lane == 0u && has_even {
            v_even = value_of(slot, e, i_even, even, odd);
        }
#if STAGE != pairs
        if lane == 0u && has_odd {
            v_odd = value_of(slot, e, at + 1u, odd, 0.0);
        }
#endif
#if ROUND
        let made_before = r / STEP % FLUSH;
        if lane == 0u {
            let to = made_before + 2u / STEP * (thread / LANES);
            results[to] = v_even;
#if STAGE != pairs
            results[to + 1u] = v_odd;
#endif
        }
        if made_before + AT_ONCE == FLUSH {
            flush(thread, slot, e, first / STEP + r / STEP - made_before);
        }
#else
        if lane == 0u && has_even {
            store(slot, i_even, v_even);
        }
#if STAGE != pairs
        if lane == 0u && has_odd {
            store(slot, at + 1u, v_odd);
        }
#endif
#endif
    }
}
