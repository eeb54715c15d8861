// Where a row of q | k | v has its heads, and what the gates of a head are. Needs n_k_heads and n_v_heads in the parameters.
@group(0) @binding(B_QKV) var<storage, read> qkv: array<f32>; // [rows, 2 * n_k_heads * K_DIM + n_v_heads * V_DIM]
#include "kernels/functions.wgsl"

// Added to the sum of squares of a query or a key.
const L2_EPS = 1e-6;

fn q_of(head: u32) -> u32 {
    return head * p.n_k_heads / p.n_v_heads * K_DIM;
}

fn k_of(head: u32) -> u32 {
    return p.n_k_heads * K_DIM + q_of(head);
}

fn v_of(head: u32) -> u32 {
    return 2u * p.n_k_heads * K_DIM + head * V_DIM;
}

// Four values of a head's `width` from `at` on, of which `i` is the first; zeros behind its end.
fn quad_of(at: u32, i: u32, width: u32) -> vec4<f32> {
#if ALIGNED
    return vec4<f32>(qkv[at + i], qkv[at + i + 1u], qkv[at + i + 2u], qkv[at + i + 3u]);
#else
    var v = vec4<f32>();
    for (var j = 0u; j < 4u && i + j < width; j++) {
        v[j] = qkv[at + i + j];
    }
    return v;
#endif
}
