// Writes new keys and values into the cache: an invocation a quad.
#include "kernels/common.wgsl"

struct Params {
    k_offset: u32,
    k_stride: u32,
    v_offset: u32,
    v_stride: u32,
    cut_first: u32,
    cut_end: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_K) var<storage, read> k: array<f32>; // [rows, N_KV_HEADS * HEAD_DIM]
@group(0) @binding(B_V) var<storage, read> v: array<f32>; // [rows, N_KV_HEADS * V_DIM]
#include "kernels/attention/cache.wgsl"

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(id, n);
    if row >= step.own || step.done != 0u || step.past + row < p.cut_first || step.past + row >= p.cut_end {
        return;
    }
    let position = step.past + row - p.cut_first;
    for (var i = thread; i < N_KV_HEADS * K_QUADS; i += 64u) {
        let source = p.k_offset + (step.first + row) * p.k_stride + i / K_QUADS * HEAD_DIM;
        var quad = vec4<f32>();
        for (var j = 0u; j < min(4u, HEAD_DIM - 4u * (i % K_QUADS)); j++) {
            quad[j] = k[source + 4u * (i % K_QUADS) + j];
        }
        keys[position * N_KV_HEADS * K_QUADS + i] = pack_quad(quad);
    }
    for (var i = thread; i < N_KV_HEADS * V_QUADS; i += 64u) {
        let source = p.v_offset + (step.first + row) * p.v_stride + i / V_QUADS * V_DIM;
        var quad = vec4<f32>();
        for (var j = 0u; j < min(4u, V_DIM - 4u * (i % V_QUADS)); j++) {
            quad[j] = v[source + 4u * (i % V_QUADS) + j];
        }
        values[position * N_KV_HEADS * V_QUADS + i] = pack_quad(quad);
    }
}
