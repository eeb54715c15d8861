// Mamba-1's recurrence for one new row: LANES invocations go down a channel's states, each taking every LANES-th quad. Every
// workgroup makes B and C, which all channels share, in its own memory. Step sizes are read, or (B_LOW) made here first: the
// same invocations go down the channel's row of the matrix that makes them of a short row, which B and C lie beside.
#include "kernels/common.wgsl"

struct Params {
    channels: u32,
    x_offset: u32,
    dt_offset: u32, // of the step sizes, or the short row
    b_offset: u32,
    c_offset: u32,
    out_offset: u32,
    b_eps: f32,
    c_eps: f32,
    norms_at: u32, // in `small`: weights of the norms of B and C
#if B_LOW
    low_eps: f32,
    low_norm_at: u32, // in `small`: weights of the norm of the short row
    cols: u32,
    groups: u32,
    row_words: u32,
#endif
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [channels]
#if B_LOW
@group(0) @binding(B_LOW) var<storage, read> low: array<f32>; // the short row, B and C, each from its offset on
#define b_row low
#define c_row low
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [channels, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#else
@group(0) @binding(B_DT) var<storage, read> dt: array<f32>; // [channels]
@group(0) @binding(B_B) var<storage, read> b_row: array<f32>; // [D_STATE]
#if B_C
@group(0) @binding(B_C) var<storage, read> c_row: array<f32>; // [D_STATE]
#else
#define c_row b_row
#endif
#endif
#if B_SMALL
@group(0) @binding(B_SMALL) var<storage, read> small: array<f32>; // the bias of step sizes [channels], then norms' weights
#endif
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [channels]
#include "kernels/scan/states.wgsl"
#include "kernels/functions.wgsl"

const THREADS = 64u;
const CHANNELS = THREADS / LANES;
// B, then C.
var<workgroup> made: array<vec4<f32>, 2u * QUADS>;
var<workgroup> sums: array<f32, THREADS>;

// The factor of a norm over a side's values.
fn norm_factor(side: u32, eps: f32) -> f32 {
    var square = 0.0;
    for (var i = 0u; i < QUADS; i++) {
        let v = made[side * QUADS + i];
        square += dot(v, v);
    }
    return 1.0 / sqrt(square / f32(D_STATE) + eps);
}

fn norm_weight(side: u32, quad: u32) -> vec4<f32> {
    var w = vec4<f32>(1.0);
#if WEIGHTED
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        w[j] = small[p.norms_at + side * D_STATE + 4u * quad + j];
    }
#endif
    return w;
}

#if B_LOW
#include "kernels/scan/steps.wgsl"
#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    for (var i = thread; i < 2u * QUADS; i += THREADS) {
        var v = vec4<f32>();
        for (var j = 0u; j < min(4u, D_STATE - 4u * (i % QUADS)); j++) {
            if i < QUADS {
                v[j] = b_row[p.b_offset + 4u * i + j];
            } else {
                v[j] = c_row[p.c_offset + 4u * (i - QUADS) + j];
            }
        }
        made[i] = v;
    }
    workgroupBarrier();
#if NORM_OF_B || NORM_OF_C
    var factors = vec2<f32>(1.0);
#if NORM_OF_B
    factors.x = norm_factor(0u, p.b_eps);
#endif
#if NORM_OF_C
    factors.y = norm_factor(1u, p.c_eps);
#endif
    workgroupBarrier();
    for (var i = thread; i < 2u * QUADS; i += THREADS) {
        made[i] *= factors[i / QUADS] * norm_weight(i / QUADS, i % QUADS);
    }
    workgroupBarrier();
#endif

    let channel = group_index(id, n) * CHANNELS + thread / LANES;
    let lane = thread % LANES;
    let there = channel < p.channels;
#if B_LOW
    let raw = step_size(thread, select(0u, channel, there));
#else
    let raw = dt[p.dt_offset + select(0u, channel, there)];
#endif
    var sum = 0.0;
    if there {
        let size = softplus(raw);
        let value = x[p.x_offset + channel];
        for (var quad = lane; quad < QUADS; quad += LANES) {
            let h = next_state(state_quad(channel, quad), size, a_quad(channel, quad), value * made[quad]);
            if step.done == 0u {
                keep_state(channel, quad, h);
            }
            sum += dot(made[QUADS + quad], h);
        }
    }
    sums[thread] = sum;
    workgroupBarrier();
    if there && lane == 0u {
        for (var i = 1u; i < LANES; i++) {
            sum += sums[thread + i];
        }
        out[p.out_offset + channel] = sum + d_of(channel) * x[p.x_offset + channel];
    }
}
