// Reads all of a buffer as products read weights: neighbours read neighbouring quads. With FILL it is filled instead, with
// values that no memory controller can compress.
#include "kernels/common.wgsl"

struct Params {
    quads: u32,
    never: u32, // what no sum is
}
@group(0) @binding(0) var<uniform> p: Params;
#if FILL
@group(0) @binding(B_DATA) var<storage, read_write> data: array<vec4<u32>>;
#else
@group(0) @binding(B_DATA) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<u32>;
#endif

const THREADS = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = group_index(id, n) * (THREADS * EACH) + lane;
#if FILL
    for (var i = 0u; i < EACH; i++) {
        let at = first + i * THREADS;
        if at < p.quads {
            let odd = at * 2654435761u;
            data[at] = vec4<u32>(odd, odd ^ (odd >> 15u), odd * 2246822519u, ~odd);
        }
    }
#else
    var sum = vec4<u32>();
    for (var i = 0u; i < EACH; i++) {
        let at = first + i * THREADS;
        if at < p.quads {
            sum |= data[at];
        }
    }
    // Every value has bits, so this never happens; no compiler knows it, though.
    if (sum.x | sum.y | sum.z | sum.w) == p.never {
        out[0] = lane;
    }
#endif
}
