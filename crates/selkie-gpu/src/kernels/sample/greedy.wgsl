// The likeliest token, from the largest logits of all chunks.
#include "kernels/sample/choice.wgsl"

struct Params {
    chunks: u32,
    ids: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_PARTS) var<storage, read> parts: array<vec2<u32>>; // [chunks]: order, id
@group(0) @binding(B_INPUTS) var<storage, read_write> inputs: array<u32>;
#include "kernels/sample/best.wgsl"
#include "kernels/sample/deliver.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
    var own = vec2<u32>(0u, 0u);
    for (var i = thread; i < p.chunks; i += THREADS) {
        own = better(own, parts[i]);
    }
    own = best_of_all(thread, own);
    if thread == 0u {
        deliver(own.y);
    }
}
