// The gated delta rule row after row, for a token or a few: a workgroup for a head and QUADS quads of its values, whose columns of
// the state it holds in registers. LANES invocations go down a quad's column, each with EACH rows. With S as it was, k and q as
// they come, everything that is summed down the columns is summed at once:
// n = beta (v - decay S^T k / |k|), y = scale / |q| (decay S^T q + (q.k / |k|) n), S' = decay S + k / |k| n^T.
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
    out_offset: u32,
    out_stride: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_B) var<storage, read> b: array<f32>; // [rows, n_v_heads]
@group(0) @binding(B_A) var<storage, read> a: array<f32>; // [rows, n_v_heads]
@group(0) @binding(B_HEADS) var<storage, read> heads: array<f32>; // [2, n_v_heads]: A, the bias of a
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_v_heads * V_DIM]
#include "kernels/delta/shape.wgsl"
#include "kernels/delta/states.wgsl"

const THREADS = 128u;
const LANES = THREADS / QUADS;
const PARTS = (V_QUADS + QUADS - 1u) / QUADS;
// Sums down a lane's rows: S^T k and S^T q of each quad, and k.k, q.q and q.k.
var<workgroup> of_keys: array<vec4<f32>, THREADS>;
var<workgroup> of_queries: array<vec4<f32>, THREADS>;
var<workgroup> of_both: array<vec4<f32>, LANES>;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let which = group_index(id, n);
    let head = which / PARTS;
    let quad = which % PARTS * QUADS + thread % QUADS;
    let lane = thread / QUADS;
    let there = quad < V_QUADS;
    var s: array<vec4<f32>, EACH>;
    for (var e = 0u; e < EACH; e++) {
        s[e] = vec4<f32>();
        if there && lane + e * LANES < K_DIM {
            s[e] = state_quad(head, lane + e * LANES, quad);
        }
    }
    for (var row = step.first; row < step.first + step.own; row++) {
        let at = p.qkv_offset + row * p.qkv_stride;
        var k: array<f32, EACH>;
        var s_k = vec4<f32>();
        var s_q = vec4<f32>();
        var products = vec4<f32>();
        for (var e = 0u; e < EACH; e++) {
            let i = lane + e * LANES;
            k[e] = 0.0;
            var q = 0.0;
            if i < K_DIM {
                k[e] = qkv[at + k_of(head) + i];
                q = qkv[at + q_of(head) + i];
            }
            s_k += k[e] * s[e];
            s_q += q * s[e];
            products += vec4<f32>(k[e] * k[e], q * q, q * k[e], 0.0);
        }
        // What the row before left there has been read.
        workgroupBarrier();
        of_keys[thread] = s_k;
        of_queries[thread] = s_q;
        if thread % QUADS == 0u {
            of_both[lane] = products;
        }
        workgroupBarrier();
        s_k = vec4<f32>();
        s_q = vec4<f32>();
        products = vec4<f32>();
        for (var l = 0u; l < LANES; l++) {
            s_k += of_keys[l * QUADS + thread % QUADS];
            s_q += of_queries[l * QUADS + thread % QUADS];
            products += of_both[l];
        }
        let k_scale = 1.0 / sqrt(products.x + L2_EPS);
        let q_scale = p.scale / sqrt(products.y + L2_EPS);
        let size = softplus(a[p.a_offset + row * p.a_stride + head] + heads[p.n_v_heads + head]);
        let decay = exp(heads[head] * size);
        let beta = sigmoid(b[p.b_offset + row * p.b_stride + head]);
        var news = vec4<f32>();
        if there {
            let v = quad_of(at + v_of(head), 4u * quad, V_DIM);
            news = beta * (v - decay * k_scale * s_k);
        }
        for (var e = 0u; e < EACH; e++) {
            s[e] = decay * s[e] + k_scale * k[e] * news;
        }
        if there && lane == 0u {
            let y = q_scale * (decay * s_q + products.z * k_scale * news);
            let to = p.out_offset + row * p.out_stride + head * V_DIM + 4u * quad;
            for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
                out[to + j] = y[j];
            }
        }
    }
    if !there || step.done != 0u {
        return;
    }
    for (var e = 0u; e < EACH; e++) {
        if lane + e * LANES < K_DIM {
            keep_state(head, lane + e * LANES, quad, s[e]);
        }
    }
}
