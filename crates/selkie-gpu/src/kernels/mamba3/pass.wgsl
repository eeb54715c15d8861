// Mamba-3 over rows, from chunk to chunk: an invocation for each value of the state goes through the chunks and turns what they add
// into the states that they find.
#include "kernels/mamba3/block.wgsl"

@group(1) @binding(2) var<storage, read_write> states: array<f32>; // [HEADS, HEAD_DIM, D_STATE]

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(id, groups) * 256u + thread;
    if i >= HEADS * STATE {
        return;
    }
    let head = i / STATE;
    var s = states[i];
    for (var chunk = 1u; chunk * p.chunk < step.own; chunk++) {
        let at = state_at(chunk, head) + i % STATE;
        s = exp(min(scalar(chunk * p.chunk - 1u, head, 0u), 0.0)) * s + work[at];
        work[at] = s;
    }
}
