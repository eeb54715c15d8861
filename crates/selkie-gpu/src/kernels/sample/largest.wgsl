// The largest logit of each CHUNK, by its order, and the lowest id that has it.
#include "kernels/sample/choice.wgsl"
#include "kernels/sample/order.wgsl"

struct Params {
    offset: u32,
    width: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_LOGITS) var<storage, read> logits: array<u32>; // [width] from offset
@group(0) @binding(B_PARTS) var<storage, read_write> parts: array<vec2<u32>>; // [chunks]: order, id
#if B_TALLY
@group(0) @binding(B_TALLY) var<storage, read_write> tally: array<u32>; // to be cleared
#endif
#include "kernels/sample/best.wgsl"

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
#if B_TALLY
    for (var i = id.x * THREADS + thread; i < arrayLength(&tally); i += n.x * THREADS) {
        tally[i] = 0u;
    }
#endif
    var own = vec2<u32>(0u, 0u);
    for (var i = id.x * CHUNK + thread; i < min((id.x + 1u) * CHUNK, p.width); i += THREADS) {
        own = better(own, vec2<u32>(order(logits[p.offset + i]), i));
    }
    own = best_of_all(thread, own);
    if thread == 0u {
        parts[id.x] = own;
    }
}
