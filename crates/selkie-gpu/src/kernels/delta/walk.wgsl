// The gated delta rule over rows that prepare.wgsl has prepared: a workgroup for a head and QUADS quads of its values, whose columns
// of the state it holds while it walks the chunks in order. N is what rows add:
// N = T (beta V) - T (beta e^l K) S, y_t = e^(l_t) S^T q_t scale + sum P_ts n_s, S' = e^l S + sum e^(l - l_s) k_s n_s^T.
#include "kernels/common.wgsl"

struct Params {
    n_k_heads: u32,
    n_v_heads: u32,
    qkv_offset: u32,
    qkv_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_SOLVED) var<storage, read> solved: array<vec4<f32>>; // [rows, n_v_heads, V_QUADS + K_QUADS]
@group(0) @binding(B_WITHIN) var<storage, read> within: array<vec4<f32>>; // [rows, n_v_heads, CHUNK / 4 + 1]: P, factors
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_v_heads * V_DIM]
#include "kernels/delta/shape.wgsl"
#include "kernels/delta/states.wgsl"

const THREADS = 128u;
const WITHIN = CHUNK / 4u + 1u;
const PARTS = (V_QUADS + QUADS - 1u) / QUADS;
var<workgroup> s: array<vec4<f32>, 4u * K_QUADS * QUADS>; // [k, QUADS], rows past K_DIM zero
var<workgroup> news: array<vec4<f32>, CHUNK * QUADS>; // N
var<workgroup> kept: array<vec4<f32>, CHUNK * QUADS>; // N, as much of it as is left at the chunk's end

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let which = group_index(id, n);
    let head = which / PARTS;
    let first_quad = which % PARTS * QUADS;
    for (var i = thread; i < 4u * K_QUADS * QUADS; i += THREADS) {
        var v = vec4<f32>();
        if i / QUADS < K_DIM && first_quad + i % QUADS < V_QUADS {
            v = state_quad(head, i / QUADS, first_quad + i % QUADS);
        }
        s[i] = v;
    }
    workgroupBarrier();
    // A row of the chunk and a quad of values.
    let t = thread / QUADS;
    let c = thread % QUADS;
    let quad = first_quad + c;
    for (var first = 0u; first < step.own; first += CHUNK) {
        let rows = min(CHUNK, step.own - first);
        let there = t < rows && quad < V_QUADS;
        let at = (step.first + first + t) * p.n_v_heads + head;
        let from_row = p.qkv_offset + (step.first + first + t) * p.qkv_stride + q_of(head);
        var y = vec4<f32>();
        if there {
            var known = vec4<f32>();
            for (var i = 0u; i < K_QUADS; i++) {
                let w = solved[at * (V_QUADS + K_QUADS) + V_QUADS + i];
                let q = quad_of(from_row, 4u * i, K_DIM);
                for (var j = 0u; j < 4u; j++) {
                    let state = s[(4u * i + j) * QUADS + c];
                    known += w[j] * state;
                    y += q[j] * state;
                }
            }
            let added = solved[at * (V_QUADS + K_QUADS) + quad] - known;
            let factors = within[at * WITHIN + CHUNK / 4u];
            news[thread] = added;
            kept[thread] = factors.x * added;
            y *= factors.y;
        } else if t < CHUNK {
            news[thread] = vec4<f32>();
            kept[thread] = vec4<f32>();
        }
        workgroupBarrier();
        if there {
            for (var i = 0u; i <= t / 4u; i++) {
                let weights = within[at * WITHIN + i];
                for (var j = 0u; j < 4u; j++) {
                    y += weights[j] * news[(4u * i + j) * QUADS + c];
                }
            }
            let to = p.out_offset + (step.first + first + t) * p.out_stride + head * V_DIM + 4u * quad;
            for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
                out[to + j] = y[j];
            }
        }
        // The state's rows, one an invocation.
        let decay = within[((step.first + first) * p.n_v_heads + head) * WITHIN + CHUNK / 4u].z;
        for (var k = thread; k < K_DIM; k += THREADS) {
            var next: array<vec4<f32>, QUADS>;
            for (var i = 0u; i < QUADS; i++) {
                next[i] = decay * s[k * QUADS + i];
            }
            for (var r = 0u; r < rows; r++) {
                let key = qkv[p.qkv_offset + (step.first + first + r) * p.qkv_stride + k_of(head) + k];
                for (var i = 0u; i < QUADS; i++) {
                    next[i] += key * kept[r * QUADS + i];
                }
            }
            for (var i = 0u; i < QUADS; i++) {
                s[k * QUADS + i] = next[i];
            }
        }
        workgroupBarrier();
    }
    if step.done != 0u {
        return;
    }
    for (var i = thread; i < K_DIM * QUADS; i += THREADS) {
        if first_quad + i % QUADS < V_QUADS {
            keep_state(head, i / QUADS, first_quad + i % QUADS, s[i]);
        }
    }
}
