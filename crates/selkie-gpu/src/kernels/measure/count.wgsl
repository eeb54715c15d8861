// Adds one: a dispatch that does next to nothing, and has to wait for the one before it.
#include "kernels/common.wgsl"

struct Params {
    more: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<u32>; // [64]

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    out[lane] += p.more;
}
