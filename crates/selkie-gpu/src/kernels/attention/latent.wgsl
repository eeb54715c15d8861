// What latent attention reads, made by each workgroup for itself: a query is [k_up . q_nope | q_rope], the new key [norm(c) | k_rope],
// its value the first part of that. What the rotary embedding turns comes as it was before.
@group(0) @binding(B_KV) var<storage, read> kv: array<f32>; // c and k_rope
#if B_NORM_WEIGHT
@group(0) @binding(B_NORM_WEIGHT) var<storage, read> norm_weight: array<f32>; // [V_DIM]
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // k_up [N_HEADS, V_DIM, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#define TURNED_FROM V_DIM
const TURNED = HEAD_DIM - V_DIM;
var<workgroup> nope: array<vec4<f32>, NOPE_ROOM>;

fn quad_of_x(i: u32) -> vec4<f32> {
    return nope[i];
}
#define ROW_COLS NOPE
#include "kernels/product/part.wgsl"
#define partial reduced
#include "kernels/together.wgsl"

fn latent_query(thread: u32, head: u32) {
    for (var i = thread; i < NOPE_ROOM; i += THREADS) {
        var v = vec4<f32>();
        for (var j = 0u; j < 4u; j++) {
            if 4u * i + j < NOPE {
                v[j] = q_rows[p.q_offset + head * NOPE + 4u * i + j];
            }
        }
        nope[i] = v;
    }
    for (var i = thread; i < TURNED; i += THREADS) {
        heads[(V_DIM + i) / 4u][(V_DIM + i) % 4u] = q_rows[p.q_rope + head * TURNED + i];
    }
    workgroupBarrier();
    let lane = thread % LANES;
    for (var r = 0u; r < V_DIM; r += THREADS / LANES) {
        let row = r + thread / LANES;
        let there = row < V_DIM;
        let base = select(0u, head * V_DIM + row, there) * p.row_words;
        var sum = 0.0;
        for (var i = lane; i < PARTS; i += LANES) {
            sum += part(base, i, i);
        }
        sum = together(thread, sum);
        if lane == 0u && there {
            heads[row / 4u][row % 4u] = sum;
        }
    }
}

fn latent_key(thread: u32) {
    var square = 0.0;
    for (var i = thread; i < V_DIM; i += THREADS) {
        square += kv[p.k_offset + i] * kv[p.k_offset + i];
    }
    let factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(V_DIM) + p.k_eps);
    for (var i = thread; i < V_DIM; i += THREADS) {
        var v = kv[p.k_offset + i] * factor;
#if B_NORM_WEIGHT
        v *= norm_weight[i];
#endif
        heads[K_QUADS + i / 4u][i % 4u] = v;
    }
    for (var i = thread; i < TURNED; i += THREADS) {
        heads[K_QUADS + (V_DIM + i) / 4u][(V_DIM + i) % 4u] = kv[p.k_rope + i];
    }
}

fn new_value(kv_head: u32, i: u32) -> f32 {
    return channel(1u, i);
}
