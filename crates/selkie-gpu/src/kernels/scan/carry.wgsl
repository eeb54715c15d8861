// From where chunks end when they run from zero to where they start: an invocation for a quad of a channel's states.
#include "kernels/common.wgsl"

struct Params {
    channels: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_TIMES) var<storage, read> times: array<f32>; // [chunks, channels]
@group(0) @binding(B_ENDS) var<storage, read_write> ends: array<vec4<f32>>; // [chunks, channels, QUADS]
#include "kernels/scan/states.wgsl"

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(id, n) * 64u + thread;
    let channel = i / QUADS;
    if channel >= p.channels {
        return;
    }
    let a = a_quad(channel, i % QUADS);
    var h = state_quad(channel, i % QUADS);
    let last = (step.own - 1u) / CHUNK;
    for (var chunk = 0u; chunk < last; chunk++) {
        let at = chunk * p.channels * QUADS + i;
        let end = ends[at];
        ends[at] = h;
        h = exp(times[chunk * p.channels + channel] * a) * h + end;
    }
    ends[last * p.channels * QUADS + i] = h;
}
