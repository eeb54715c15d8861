// Joins the parts of one row's attention: a workgroup a head.
#include "kernels/common.wgsl"

struct Params {
    out_offset: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_PARTS) var<storage, read> parts: array<f32>; // [splits, N_HEADS, 4 * V_QUADS + 2]
#if B_SINKS
@group(0) @binding(B_SINKS) var<storage, read> sinks: array<f32>; // [N_HEADS]
#endif
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [N_HEADS * V_DIM]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = id.x;
    let splits = step.past / SPLIT + 1u;
    let stride = 4u * V_QUADS + 2u;
#if B_SINKS
    var largest = sinks[head];
#else
    var largest = -1e30;
#endif
    for (var s = 0u; s < splits; s++) {
        largest = max(largest, parts[(s * N_HEADS + head) * stride + 4u * V_QUADS]);
    }
#if B_SINKS
    var whole = exp(sinks[head] - largest);
#else
    var whole = 0.0;
#endif
    for (var s = 0u; s < splits; s++) {
        let at = (s * N_HEADS + head) * stride + 4u * V_QUADS;
        whole += exp(parts[at] - largest) * parts[at + 1u];
    }
    for (var i = thread; i < V_DIM; i += 64u) {
        var sum = 0.0;
        for (var s = 0u; s < splits; s++) {
            let at = (s * N_HEADS + head) * stride;
            sum += exp(parts[at + 4u * V_QUADS] - largest) * parts[at + i];
        }
        out[p.out_offset + head * V_DIM + i] = sum / whole;
    }
}
