// Attention of many new rows, whose keys and values are in the cache already: a workgroup for each query head and each TILE_Q rows
// goes over the cache in tiles of 64 positions, keeping the largest score and the sums so far. No score leaves the workgroup. Where the
// cache is cut, what was kept goes from one cut to the next, and the last one has the results.
#include "kernels/common.wgsl"

struct Params {
    q_offset: u32,
    q_stride: u32,
    out_offset: u32,
    out_stride: u32,
    window: u32, // 0: none
    scale: f32,
    softcap: f32,
    cut_first: u32,
    cut_end: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_Q) var<storage, read> q_rows: array<f32>; // [rows, N_HEADS * HEAD_DIM]
#if B_SINKS
@group(0) @binding(B_SINKS) var<storage, read> sinks: array<f32>; // [N_HEADS]
#endif
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, N_HEADS * V_DIM]
#if B_KEPT
@group(0) @binding(B_KEPT) var<storage, read_write> kept: array<f32>; // [rows, N_HEADS, 4 * V_QUADS + 2]
#endif
#include "kernels/attention/cache.wgsl"
#include "kernels/functions.wgsl"

const THREADS = 128u;
const TILE_K = 64u;
const LEAST = -1e30;
// Invocations that share a row's values, and rows of each.
const LANES = THREADS / V_QUADS;
const ROWS_EACH = (TILE_Q + LANES - 1u) / LANES;
const SCORES_EACH = TILE_Q / (THREADS / TILE_K);
var<workgroup> queries: array<vec4<f32>, TILE_Q * K_QUADS>;
var<workgroup> scores: array<f32, TILE_Q * TILE_K>;
var<workgroup> largest: array<f32, TILE_Q>;
var<workgroup> weights: array<f32, TILE_Q>;
var<workgroup> factors: array<f32, TILE_Q>;

#if B_KEPT
// Where what is kept of a row is: its sums, the largest score, and the weights' sum.
fn kept_at(row: u32, head: u32) -> u32 {
    return ((step.first + row) * N_HEADS + head) * (4u * V_QUADS + 2u);
}
#endif

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = id.x;
    let kv_head = head / (N_HEADS / N_KV_HEADS);
    let first = id.y * TILE_Q;
    for (var i = thread; i < TILE_Q * K_QUADS; i += THREADS) {
        let row = first + i / K_QUADS;
        var quad = vec4<f32>();
        if row < step.own {
            let source = p.q_offset + (step.first + row) * p.q_stride + head * HEAD_DIM + 4u * (i % K_QUADS);
            for (var j = 0u; j < min(4u, HEAD_DIM - 4u * (i % K_QUADS)); j++) {
                quad[j] = q_rows[source + j];
            }
        }
        queries[i] = quad;
    }
    if thread < TILE_Q {
        largest[thread] = LEAST;
        weights[thread] = 0.0;
#if B_KEPT
        if p.cut_first > 0u && first + thread < step.own {
            let at = kept_at(first + thread, head) + 4u * V_QUADS;
            largest[thread] = kept[at];
            weights[thread] = kept[at + 1u];
        }
#endif
    }
    workgroupBarrier();

    let last_row = min(first + TILE_Q, step.own) - 1u;
    let end = min(step.past + last_row + 1u, p.cut_end);
    // The first position that any row of the tile sees.
    var start = 0u;
    if p.window > 0u && step.past + first + 1u > p.window {
        start = (step.past + first + 1u - p.window) / TILE_K * TILE_K;
    }
    start = max(start, p.cut_first);
    var sums: array<vec4<f32>, ROWS_EACH>;
    for (var r = 0u; r < ROWS_EACH; r++) {
        sums[r] = vec4<f32>();
    }
    let quad = thread % V_QUADS;
    let lane = thread / V_QUADS;
#if B_KEPT
    for (var r = 0u; r < ROWS_EACH && p.cut_first > 0u; r++) {
        let in_tile = lane * ROWS_EACH + r;
        if lane < LANES && in_tile < TILE_Q && first + in_tile < step.own {
            let at = kept_at(first + in_tile, head) + 4u * quad;
            sums[r] = vec4<f32>(kept[at], kept[at + 1u], kept[at + 2u], kept[at + 3u]);
        }
    }
#endif
    for (var tile = start; tile < end; tile += TILE_K) {
        // Scores: an invocation has one position and some rows.
        let position = tile + thread % TILE_K;
        let row0 = thread / TILE_K * SCORES_EACH;
        var score: array<f32, SCORES_EACH>;
        for (var r = 0u; r < SCORES_EACH; r++) {
            score[r] = 0.0;
        }
        if position < end {
            for (var i = 0u; i < K_QUADS; i++) {
                let k = key_quad(position, kv_head, i);
                for (var r = 0u; r < SCORES_EACH; r++) {
                    score[r] += dot(queries[(row0 + r) * K_QUADS + i], k);
                }
            }
        }
        for (var r = 0u; r < SCORES_EACH; r++) {
            var s = score[r] * p.scale;
            if p.softcap > 0.0 {
                s = f_soft_cap(s, p.softcap);
            }
            let own = step.past + first + row0 + r;
            let seen = position <= own && position < end && (p.window == 0u || position + p.window > own);
            scores[(row0 + r) * TILE_K + thread % TILE_K] = select(LEAST, s, seen);
        }
        workgroupBarrier();
        // What the largest score so far does to the sums.
        if thread < TILE_Q {
            var top = largest[thread];
            for (var i = 0u; i < TILE_K; i++) {
                top = max(top, scores[thread * TILE_K + i]);
            }
            let factor = exp(max(largest[thread] - top, -80.0));
            var sum = weights[thread] * factor;
            for (var i = 0u; i < TILE_K; i++) {
                let s = scores[thread * TILE_K + i];
                let w = select(exp(s - top), 0.0, s <= LEAST);
                scores[thread * TILE_K + i] = w;
                sum += w;
            }
            largest[thread] = top;
            weights[thread] = sum;
            factors[thread] = factor;
        }
        workgroupBarrier();
        if lane < LANES {
            for (var r = 0u; r < ROWS_EACH; r++) {
                sums[r] *= factors[min(lane * ROWS_EACH + r, TILE_Q - 1u)];
            }
            let many = min(TILE_K, end - tile);
            for (var i = 0u; i < many; i++) {
                let v = value_quad(tile + i, kv_head, quad);
                for (var r = 0u; r < ROWS_EACH; r++) {
                    sums[r] += scores[min(lane * ROWS_EACH + r, TILE_Q - 1u) * TILE_K + i] * v;
                }
            }
        }
        workgroupBarrier();
    }
    if lane >= LANES {
        return;
    }
    for (var r = 0u; r < ROWS_EACH; r++) {
        let in_tile = lane * ROWS_EACH + r;
        let row = first + in_tile;
        if in_tile >= TILE_Q || row >= step.own {
            continue;
        }
#if B_KEPT
        if step.past + step.own > p.cut_end {
            let at = kept_at(row, head);
            for (var j = 0u; j < 4u; j++) {
                kept[at + 4u * quad + j] = sums[r][j];
            }
            if quad == 0u {
                kept[at + 4u * V_QUADS] = largest[in_tile];
                kept[at + 4u * V_QUADS + 1u] = weights[in_tile];
            }
            continue;
        }
#endif
        var whole = weights[in_tile];
        var factor = 1.0;
#if B_SINKS
        let top = max(largest[in_tile], sinks[head]);
        factor = exp(largest[in_tile] - top);
        whole = whole * factor + exp(sinks[head] - top);
#endif
        let to = p.out_offset + (step.first + row) * p.out_stride + head * V_DIM + 4u * quad;
        for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
            out[to + j] = factor * sums[r][j] / whole;
        }
    }
}
