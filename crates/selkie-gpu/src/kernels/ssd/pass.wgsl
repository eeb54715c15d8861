// From chunk to chunk: what each adds to the states becomes the states before it, and those after the last are kept. An invocation
// has a quad of states.
#include "kernels/common.wgsl"
#if COMPLEX
#include "kernels/angles.wgsl"
#endif

struct Params {
    channels: u32, // of all heads
    head_dim: u32,
    width: u32, // of a channel's states
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_ADDED) var<storage, read_write> added: array<vec4<f32>>; // [chunks, n_heads, head_dim, width in quads]
@group(0) @binding(B_TOTALS) var<storage, read> totals: array<vec2<f32>>; // [chunks, n_heads]: log decay, angle
@group(1) @binding(1) var<storage, read_write> state: array<f32>; // [n_heads, head_dim, width]
const CHUNK = 64u;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let quads = (p.width + 3u) / 4u;
    let i = group_index(id, n) * 64u + thread;
    let channel = i / quads;
    if channel >= p.channels {
        return;
    }
    let within = 4u * (i % quads);
    let own = channel * p.width + within;
    let count = min(4u, p.width - within);
    var s = vec4<f32>();
    for (var j = 0u; j < count; j++) {
        s[j] = state[own + j];
    }
    let n_heads = p.channels / p.head_dim;
    for (var chunk = 0u; chunk < (step.own + CHUNK - 1u) / CHUNK; chunk++) {
        let total = totals[chunk * n_heads + channel / p.head_dim];
        let at = chunk * p.channels * quads + i;
        let more = added[at];
        added[at] = s;
        s = exp(total.x) * s + more;
#if COMPLEX
        // Back from the plane that turned with them.
        let turn = cos_sin(total.y);
        s = vec4<f32>(
            s.x * turn.x - s.y * turn.y, s.x * turn.y + s.y * turn.x,
            s.z * turn.x - s.w * turn.y, s.z * turn.y + s.w * turn.x,
        );
#endif
    }
    if step.done == 0u {
        for (var j = 0u; j < count; j++) {
            state[own + j] = s[j];
        }
    }
}
