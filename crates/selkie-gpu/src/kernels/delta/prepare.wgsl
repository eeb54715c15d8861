// What a chunk of the gated delta rule needs of its rows alone: a workgroup for each value head and each CHUNK rows.
//
// With l the sums of log decays from the chunk's start, S the state there, k and q of length one, and
// L_ts = beta_t e^(l_t - l_s) (k_t.k_s) for s < t, what rows add is N = T (beta V) - T (beta e^l K) S with T = (1 + L)^-1. Gives
// T (beta V) and T (beta e^l K), and for each row P_ts = e^(l_t - l_s) (q_t.k_s) scale for s <= t, and its factors: of its raw
// key in the state at the chunk's end, of its raw query where it reads S, and of S at the chunk's end.
#include "kernels/common.wgsl"

struct Params {
    n_k_heads: u32,
    n_v_heads: u32,
    qkv_offset: u32,
    qkv_stride: u32,
    b_offset: u32,
    b_stride: u32,
    a_offset: u32,
    a_stride: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_B) var<storage, read> b: array<f32>; // [rows, n_v_heads]
@group(0) @binding(B_A) var<storage, read> a: array<f32>; // [rows, n_v_heads]
@group(0) @binding(B_HEADS) var<storage, read> heads: array<f32>; // [2, n_v_heads]: A, the bias of a
@group(0) @binding(B_SOLVED) var<storage, read_write> solved: array<vec4<f32>>; // [rows, n_v_heads, V_QUADS + K_QUADS]
@group(0) @binding(B_WITHIN) var<storage, read_write> within: array<f32>; // [rows, n_v_heads, CHUNK + 4]: P, factors
#include "kernels/delta/shape.wgsl"

const THREADS = 256u;
// Quads of a tile of keys and queries.
const TILE = 4u;
// Log decays below this are as good as it: e^-30 of anything is nothing, and sums stay exact enough to be subtracted.
const LEAST = -30.0;
var<workgroup> tile_k: array<vec4<f32>, CHUNK * TILE>;
var<workgroup> tile_q: array<vec4<f32>, CHUNK * TILE>;
var<workgroup> lower: array<f32, CHUNK * CHUNK>; // L
var<workgroup> inverse: array<f32, CHUNK * CHUNK>; // T, [s, t]
var<workgroup> steps: array<f32, CHUNK>; // log decays
var<workgroup> sums: array<f32, CHUNK>; // l
var<workgroup> betas: array<f32, CHUNK>;
var<workgroup> k_scales: array<f32, CHUNK>;
var<workgroup> q_scales: array<f32, CHUNK>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = id.x;
    let first = id.y * CHUNK;
    let rows = min(CHUNK, step.own - first);
    if thread < CHUNK {
        // Rows past the end change nothing.
        steps[thread] = 0.0;
        betas[thread] = 0.0;
        if thread < rows {
            let row = step.first + first + thread;
            let size = softplus(a[p.a_offset + row * p.a_stride + head] + heads[p.n_v_heads + head]);
            steps[thread] = max(heads[head] * size, LEAST);
            betas[thread] = sigmoid(b[p.b_offset + row * p.b_stride + head]);
        }
    }
    workgroupBarrier();
    if thread < CHUNK {
        var sum = 0.0;
        for (var i = 0u; i <= thread; i++) {
            sum += steps[i];
        }
        sums[thread] = sum;
    }

    // Products of keys with keys and of queries with keys: an invocation has one t and every eighth s.
    let t = thread / 8u;
    var k_k = vec4<f32>();
    var q_k = vec4<f32>();
    var square = vec2<f32>();
    for (var tile = 0u; tile < K_QUADS; tile += TILE) {
        for (var i = thread; i < CHUNK * TILE; i += THREADS) {
            let quad = tile + i / CHUNK;
            var k = vec4<f32>();
            var q = vec4<f32>();
            if i % CHUNK < rows && quad < K_QUADS {
                let at = p.qkv_offset + (step.first + first + i % CHUNK) * p.qkv_stride;
                k = quad_of(at + k_of(head), 4u * quad, K_DIM);
                q = quad_of(at + q_of(head), 4u * quad, K_DIM);
            }
            tile_k[i] = k;
            tile_q[i] = q;
        }
        workgroupBarrier();
        for (var i = 0u; i < TILE; i++) {
            let at = i * CHUNK;
            let k = tile_k[at + t];
            let q = tile_q[at + t];
            let k0 = tile_k[at + thread % 8u];
            let k1 = tile_k[at + thread % 8u + 8u];
            let k2 = tile_k[at + thread % 8u + 16u];
            let k3 = tile_k[at + thread % 8u + 24u];
            k_k += vec4<f32>(dot(k, k0), dot(k, k1), dot(k, k2), dot(k, k3));
            q_k += vec4<f32>(dot(q, k0), dot(q, k1), dot(q, k2), dot(q, k3));
            square += vec2<f32>(dot(k, k), dot(q, q));
        }
        workgroupBarrier();
    }
    if thread % 8u == 0u {
        k_scales[t] = 1.0 / sqrt(square.x + L2_EPS);
        q_scales[t] = p.scale / sqrt(square.y + L2_EPS);
    }
    workgroupBarrier();
    let to = ((step.first + first + t) * p.n_v_heads + head) * (CHUNK + 4u);
    for (var i = 0u; i < 4u; i++) {
        let s = thread % 8u + 8u * i;
        let weight = k_scales[s] * exp(min(sums[t] - sums[s], 0.0));
        lower[t * CHUNK + s] = select(0.0, betas[t] * k_scales[t] * weight * k_k[i], s < t);
        if t < rows {
            within[to + s] = select(0.0, q_scales[t] * weight * q_k[i], s <= t);
        }
    }
    if thread % 8u == 0u && t < rows {
        let whole = sums[CHUNK - 1u];
        within[to + CHUNK] = k_scales[t] * exp(min(whole - sums[t], 0.0));
        within[to + CHUNK + 1u] = q_scales[t] * exp(sums[t]);
        within[to + CHUNK + 2u] = exp(whole);
    }
    workgroupBarrier();

    // A column of T is an invocation's own.
    if thread < CHUNK {
        for (var r = 0u; r < CHUNK; r++) {
            var sum = select(0.0, 1.0, r == thread);
            for (var m = thread; m < r; m++) {
                sum -= lower[r * CHUNK + m] * inverse[thread * CHUNK + m];
            }
            inverse[thread * CHUNK + r] = select(0.0, sum, r >= thread);
        }
    }
    workgroupBarrier();

    // T times the columns of V and K, eight rows and a quad an invocation.
    let first_t = thread / 64u * 8u;
    for (var column = thread % 64u; column < V_QUADS + K_QUADS; column += 64u) {
        var result: array<vec4<f32>, 8>;
        for (var i = 0u; i < 8u; i++) {
            result[i] = vec4<f32>();
        }
        for (var s = 0u; s < min(first_t + 8u, rows); s++) {
            let at = p.qkv_offset + (step.first + first + s) * p.qkv_stride;
            var value = vec4<f32>();
            if column < V_QUADS {
                value = betas[s] * quad_of(at + v_of(head), 4u * column, V_DIM);
            } else {
                let k = quad_of(at + k_of(head), 4u * (column - V_QUADS), K_DIM);
                value = betas[s] * k_scales[s] * exp(sums[s]) * k;
            }
            for (var i = 0u; i < 8u; i++) {
                result[i] += inverse[s * CHUNK + first_t + i] * value;
            }
        }
        for (var i = 0u; i < 8u; i++) {
            if first_t + i < rows {
                let row = step.first + first + first_t + i;
                solved[(row * p.n_v_heads + head) * (V_QUADS + K_QUADS) + column] = result[i];
            }
        }
    }
}
