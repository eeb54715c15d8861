// Attention of one new row: a workgroup for each query head and each SPLIT positions of the cache. The head's query is normed and
// turned here; whoever has the last positions makes the new key too, and the first head of a group writes it to the cache. Up to
// SPLIT positions the result is final; beyond, combine.wgsl joins the parts.
#include "kernels/common.wgsl"

struct Params {
    q_offset: u32,
    k_offset: u32,
    v_offset: u32,
    out_offset: u32,
    window: u32, // 0: none
    scale: f32,
    softcap: f32,
    q_eps: f32,
    k_eps: f32,
    q_clamp: f32, // 0: none
    k_clamp: f32,
#if LATENT
    q_rope: u32,
    k_rope: u32,
    row_words: u32,
#endif
    cut_first: u32,
    cut_end: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_Q) var<storage, read> q_rows: array<f32>; // [N_HEADS * HEAD_DIM] from q_offset
#if B_K
@group(0) @binding(B_K) var<storage, read> k_rows: array<f32>; // [N_KV_HEADS * HEAD_DIM] from k_offset
@group(0) @binding(B_V) var<storage, read> v_rows: array<f32>; // [N_KV_HEADS * V_DIM] from v_offset
#else
#define k_rows q_rows
#define v_rows q_rows
#endif
#if B_NORMS
@group(0) @binding(B_NORMS) var<storage, read> norms: array<f32>; // of queries, then of keys: a head's or a row's
#endif
#if B_ANGLES
@group(0) @binding(B_ANGLES) var<storage, read> angles: array<vec2<f32>>; // [rows, PAIRS]
#endif
#if B_SINKS
@group(0) @binding(B_SINKS) var<storage, read> sinks: array<f32>; // [N_HEADS]
#endif
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [N_HEADS * V_DIM]
@group(0) @binding(B_PARTS) var<storage, read_write> parts: array<f32>; // [splits, N_HEADS, 4 * V_QUADS + 2]
#include "kernels/attention/cache.wgsl"
#include "kernels/functions.wgsl"

const THREADS = 256u;
const LEAST = -1e30;
// The query and the new key, each HEAD_DIM padded to quads.
var<workgroup> heads: array<vec4<f32>, 2u * K_QUADS>;
var<workgroup> scores: array<f32, SPLIT>;
var<workgroup> reduced: array<f32, THREADS>;
var<workgroup> sums: array<vec4<f32>, THREADS>;

fn channel(side: u32, i: u32) -> f32 {
    return heads[side * K_QUADS + i / 4u][i % 4u];
}

fn sum_of_all(thread: u32, value: f32) -> f32 {
    workgroupBarrier();
#if SUBGROUP
    let own = subgroupAdd(value);
    if thread % SUBGROUP == 0u {
        reduced[thread / SUBGROUP] = own;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < THREADS / SUBGROUP; i++) {
        sum += reduced[i];
    }
    return sum;
#else
    reduced[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            reduced[thread] += reduced[thread + half];
        }
        workgroupBarrier();
    }
    return reduced[0];
#endif
}

fn max_of_all(thread: u32, value: f32) -> f32 {
    workgroupBarrier();
#if SUBGROUP
    let own = subgroupMax(value);
    if thread % SUBGROUP == 0u {
        reduced[thread / SUBGROUP] = own;
    }
    workgroupBarrier();
    var most = LEAST;
    for (var i = 0u; i < THREADS / SUBGROUP; i++) {
        most = max(most, reduced[i]);
    }
    return most;
#else
    reduced[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            reduced[thread] = max(reduced[thread], reduced[thread + half]);
        }
        workgroupBarrier();
    }
    return reduced[0];
#endif
}

#if LATENT
#include "kernels/attention/latent.wgsl"
#else
#define TURNED_FROM 0u

// A channel of the new row's values.
fn new_value(kv_head: u32, i: u32) -> f32 {
    return v_rows[p.v_offset + kv_head * V_DIM + i];
}
#endif

// Norms and turns a head that was loaded. SIDE 0 is the query, 1 the key.
fn prepare(thread: u32, side: u32, head: u32, normed: bool, eps: f32, turned: bool, limit: f32) {
#if B_NORMS
    if normed {
        var square = 0.0;
        var width = HEAD_DIM;
        if side == 0u && Q_WHOLE {
            width = N_HEADS * HEAD_DIM;
            for (var i = thread; i < width; i += THREADS) {
                square += q_rows[p.q_offset + i] * q_rows[p.q_offset + i];
            }
        } else if side == 1u && K_WHOLE {
            width = N_KV_HEADS * HEAD_DIM;
            for (var i = thread; i < width; i += THREADS) {
                square += k_rows[p.k_offset + i] * k_rows[p.k_offset + i];
            }
        } else {
            for (var i = thread; i < HEAD_DIM; i += THREADS) {
                square += channel(side, i) * channel(side, i);
            }
        }
        let factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(width) + eps);
        // Weights are a head's, or a row's.
        let weights = select(K_WEIGHTS, 0u, side == 0u) + select(0u, head * HEAD_DIM, select(K_EACH, Q_EACH, side == 0u));
        for (var i = thread; i < HEAD_DIM; i += THREADS) {
            heads[side * K_QUADS + i / 4u][i % 4u] *= factor * norms[weights + i];
        }
        workgroupBarrier();
    }
#endif
    if limit > 0.0 {
        for (var i = thread; i < HEAD_DIM; i += THREADS) {
            heads[side * K_QUADS + i / 4u][i % 4u] = clamp(channel(side, i), -limit, limit);
        }
        workgroupBarrier();
    }
#if B_ANGLES
    if turned {
        for (var pair = thread; pair < PAIRS; pair += THREADS) {
#if INTERLEAVED
            let a = TURNED_FROM + 2u * pair;
            let b = a + 1u;
#else
            let a = TURNED_FROM + pair;
            let b = a + PAIRS;
#endif
            let angle = angles[step.input * PAIRS + pair];
            let x = channel(side, a);
            let y = channel(side, b);
            heads[side * K_QUADS + a / 4u][a % 4u] = x * angle.x - y * angle.y;
            heads[side * K_QUADS + b / 4u][b % 4u] = y * angle.x + x * angle.y;
        }
        workgroupBarrier();
    }
#endif
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let which = group_index(id, n);
    let head = which % N_HEADS;
    let split = which / N_HEADS;
    let kv_head = head / (N_HEADS / N_KV_HEADS);
    let last = step.past;
    let first = split * SPLIT;
    if first > last || first < p.cut_first || first >= p.cut_end {
        return;
    }
    let end = min(first + SPLIT, last + 1u);
    let has_new = end == last + 1u;
    for (var i = thread; i < 2u * K_QUADS; i += THREADS) {
        heads[i] = vec4<f32>();
    }
    workgroupBarrier();
#if LATENT
    latent_query(thread, head);
#else
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        heads[i / 4u][i % 4u] = q_rows[p.q_offset + head * HEAD_DIM + i];
    }
#endif
    workgroupBarrier();
    prepare(thread, 0u, head, Q_NORMED, p.q_eps, Q_TURNED, p.q_clamp);
    if has_new {
#if LATENT
        latent_key(thread);
#else
        for (var i = thread; i < HEAD_DIM; i += THREADS) {
            heads[K_QUADS + i / 4u][i % 4u] = k_rows[p.k_offset + kv_head * HEAD_DIM + i];
        }
#endif
        workgroupBarrier();
        prepare(thread, 1u, kv_head, K_NORMED, p.k_eps, K_TURNED, p.k_clamp);
        if head % (N_HEADS / N_KV_HEADS) == 0u && step.done == 0u {
            for (var i = thread; i < K_QUADS; i += THREADS) {
                keys[((last - p.cut_first) * N_KV_HEADS + kv_head) * K_QUADS + i] = pack_quad(heads[K_QUADS + i]);
            }
            for (var i = thread; i < V_QUADS; i += THREADS) {
                var v = vec4<f32>();
                for (var j = 0u; j < min(4u, V_DIM - 4u * i); j++) {
                    v[j] = new_value(kv_head, 4u * i + j);
                }
                values[((last - p.cut_first) * N_KV_HEADS + kv_head) * V_QUADS + i] = pack_quad(v);
            }
        }
    }
    workgroupBarrier();

    // Scores: SHARE invocations a position.
    var largest = LEAST;
    for (var tile = first; tile < end; tile += THREADS / SHARE) {
        let position = tile + thread / SHARE;
        var score = 0.0;
        if position == last {
            for (var i = thread % SHARE; i < K_QUADS; i += SHARE) {
                score += dot(heads[i], heads[K_QUADS + i]);
            }
        } else if position < end {
            for (var i = thread % SHARE; i < K_QUADS; i += SHARE) {
                score += dot(heads[i], key_quad(position, kv_head, i));
            }
        }
#if SUBGROUP
        for (var over = SHARE / 2u; over > 0u; over >>= 1u) {
            score += subgroupShuffleXor(score, over);
        }
#endif
        score *= p.scale;
        if p.softcap > 0.0 {
            score = f_soft_cap(score, p.softcap);
        }
        if p.window > 0u && position + p.window <= last {
            score = LEAST;
        }
        if position < end {
            scores[position - first] = score;
            largest = max(largest, score);
        }
    }
    largest = max_of_all(thread, largest);
    var weight = 0.0;
    for (var position = first + thread; position < end; position += THREADS) {
        let score = scores[position - first];
        let w = select(exp(score - largest), 0.0, score <= LEAST);
        scores[position - first] = w;
        weight += w;
    }
    weight = sum_of_all(thread, weight);

    // Values: an invocation a quad of channels, as many positions at once as there are invocations for.
    let lanes = THREADS / V_QUADS;
    let lane = thread / V_QUADS;
    let quad = thread % V_QUADS;
    var sum = vec4<f32>();
    if lane < lanes {
        // The new row is not in the cache yet, as far as this kernel knows.
        let cached = select(end, last, has_new);
        var position = first + lane;
        for (; position + 3u * lanes < cached; position += 4u * lanes) {
            let a = value_quad(position, kv_head, quad);
            let b = value_quad(position + lanes, kv_head, quad);
            let c = value_quad(position + 2u * lanes, kv_head, quad);
            let d = value_quad(position + 3u * lanes, kv_head, quad);
            let at = position - first;
            sum += scores[at] * a + scores[at + lanes] * b + scores[at + 2u * lanes] * c + scores[at + 3u * lanes] * d;
        }
        for (; position < cached; position += lanes) {
            sum += scores[position - first] * value_quad(position, kv_head, quad);
        }
        if has_new && position == last {
            var v = vec4<f32>();
            for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
                v[j] = new_value(kv_head, 4u * quad + j);
            }
            sum += scores[last - first] * v;
        }
    }
    sums[thread] = sum;
    workgroupBarrier();
    if thread < V_QUADS {
        for (var other = 1u; other < lanes; other++) {
            sum += sums[other * V_QUADS + thread];
        }
        if last < SPLIT {
            var whole = weight;
            var factor = 1.0;
#if B_SINKS
            let top = max(largest, sinks[head]);
            factor = exp(largest - top);
            whole = weight * factor + exp(sinks[head] - top);
#endif
            for (var j = 0u; j < min(4u, V_DIM - 4u * thread); j++) {
                out[p.out_offset + head * V_DIM + 4u * thread + j] = factor * sum[j] / whole;
            }
        } else {
            let at = (split * N_HEADS + head) * (4u * V_QUADS + 2u);
            for (var j = 0u; j < 4u; j++) {
                parts[at + 4u * thread + j] = sum[j];
            }
            if thread == 0u {
                parts[at + 4u * V_QUADS] = largest;
                parts[at + 4u * V_QUADS + 1u] = weight;
            }
        }
    }
}
