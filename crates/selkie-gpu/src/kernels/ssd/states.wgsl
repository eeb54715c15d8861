// What each chunk of rows adds to the states of a head by its end: `Σ e^(decay from s to the end) · x[s] · B[s]ᵀ`, 64 channels by
// 64 states a workgroup, and how much the chunk lets states decay and turn.
#include "kernels/ssd/head.wgsl"
#include "kernels/ssd/chunk.wgsl"

@group(0) @binding(B_ADDED) var<storage, read_write> added: array<vec4<f32>>; // [chunks, n_heads, head_dim, width in quads]
@group(0) @binding(B_TOTALS) var<storage, read_write> totals: array<vec2<f32>>; // [chunks, n_heads]: log decay, angle
const ROWS = 16u;
var<workgroup> xs: array<vec4<f32>, ROWS * 16u>; // [ROWS, 64 channels]
var<workgroup> bs: array<vec4<f32>, ROWS * 16u>; // [ROWS, 64 states]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let quads = (p.width + 3u) / 4u;
    let across = (quads + 15u) / 16u;
    let channel0 = id.x / across * 64u;
    let quad0 = id.x % across * 16u;
    let head = id.y;
    let first = id.z * CHUNK;
    sum_up(thread, head, first);
    let end = decays[CHUNK - 1u];
    // Four channels by four states, in variables with names: compilers keep those in registers, arrays not always.
    var sum0 = vec4<f32>();
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();
    let i = thread % 16u;
    let j = thread / 16u;
    for (var row0 = 0u; row0 < min(CHUNK, step.own - first); row0 += ROWS) {
        // One quad of each for every invocation.
        let row = row0 + j;
        xs[thread] = exp(min(end - decays[row], 0.0)) * x_quad(first + row, head, channel0 + 4u * i);
        bs[thread] = b_quad(first + row, head, 4u * (quad0 + i));
        workgroupBarrier();
        for (var row = 0u; row < ROWS; row++) {
            let x = xs[row * 16u + j];
            let b = bs[row * 16u + i];
            sum0 += x.x * b;
            sum1 += x.y * b;
            sum2 += x.z * b;
            sum3 += x.w * b;
        }
        workgroupBarrier();
    }
    if quad0 + i < quads {
        let channel = channel0 + 4u * j;
        let to = ((id.z * p.n_heads + head) * p.head_dim + channel) * quads + quad0 + i;
        if channel < p.head_dim {
            added[to] = sum0;
        }
        if channel + 1u < p.head_dim {
            added[to + quads] = sum1;
        }
        if channel + 2u < p.head_dim {
            added[to + 2u * quads] = sum2;
        }
        if channel + 3u < p.head_dim {
            added[to + 3u * quads] = sum3;
        }
    }
    if id.x == 0u && thread == 0u {
#if COMPLEX
        totals[id.z * p.n_heads + head] = vec2<f32>(end, angles[CHUNK - 1u]);
#else
        totals[id.z * p.n_heads + head] = vec2<f32>(end, 0.0);
#endif
    }
}
