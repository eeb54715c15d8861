// The recurrence row after row, for a token or a few. A workgroup has CHANNELS channels of a head, LANES invocations each, which
// keep their states, four quads at most, from row to row.
#include "kernels/ssd/head.wgsl"

@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_heads · head_dim]
#if QUADS
@group(1) @binding(1) var<storage, read_write> state: array<vec4<f32>>; // [n_heads, head_dim, width]
#else
@group(1) @binding(1) var<storage, read_write> state: array<f32>; // [n_heads, head_dim, width]
#endif
const THREADS = 128u;
const CHANNELS = THREADS / LANES;
var<workgroup> sums: array<f32, 2u * THREADS>;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let each_head = (p.head_dim + CHANNELS - 1u) / CHANNELS;
    let head = group_index(id, n) / each_head;
    if head >= p.n_heads {
        return;
    }
    let channel = group_index(id, n) % each_head * CHANNELS + thread / LANES;
    let lane = thread % LANES;
    let inside = channel < p.head_dim;
    let own = (head * p.head_dim + channel) * p.width;
    // In variables with names: compilers keep those in registers, arrays not always.
    let at = 4u * lane;
    var s0 = state_quad(inside, own, at);
    var s1 = state_quad(inside, own, at + 4u * LANES);
    var s2 = state_quad(inside, own, at + 8u * LANES);
    var s3 = state_quad(inside, own, at + 12u * LANES);
    for (var row = 0u; row < step.own; row++) {
        let factors = step_of(row, head);
        var decay = vec2<f32>(exp(factors.log_decay), 0.0);
#if COMPLEX
        decay = decay.x * cos_sin(factors.angle);
#endif
        var x = 0.0;
        if inside {
            x = xbc_at(x_start(row, head) + channel);
        }
        let b = b_start(row, head);
        var sum = advance(&s0, b, at, decay, factors.input, x);
        sum += advance(&s1, b, at + 4u * LANES, decay, factors.input, x);
        sum += advance(&s2, b, at + 8u * LANES, decay, factors.input, x);
        sum += advance(&s3, b, at + 12u * LANES, decay, factors.input, x);
        // Rows take turns with the room, so that one barrier is enough.
        let room = row % 2u * THREADS;
        sums[room + thread] = sum;
        workgroupBarrier();
        if lane == 0u && inside {
            var y = d_of(head) * x;
            for (var i = 0u; i < LANES; i++) {
                y += sums[room + thread + i];
            }
            out[p.out_offset + (step.first + row) * p.out_stride + head * p.head_dim + channel] = y;
        }
    }
    if !inside || step.done != 0u {
        return;
    }
    keep(own, at, s0);
    keep(own, at + 4u * LANES, s1);
    keep(own, at + 8u * LANES, s2);
    keep(own, at + 12u * LANES, s3);
}

// Takes four states a row on; gives their part of what is read.
fn advance(s: ptr<function, vec4<f32>>, b: u32, at: u32, decay: vec2<f32>, input: vec2<f32>, x: f32) -> f32 {
    if at >= p.width {
        return 0.0;
    }
    *s = quad_product(*s, decay) + x * quad_product(xbc_quad(b, at, p.width), input);
    return dot(*s, xbc_quad(b + p.n_groups * p.width, at, p.width));
}

#if QUADS
fn state_quad(inside: bool, own: u32, at: u32) -> vec4<f32> {
    if !inside || at >= p.width {
        return vec4<f32>();
    }
    return state[(own + at) / 4u];
}

fn keep(own: u32, at: u32, quad: vec4<f32>) {
    if at < p.width {
        state[(own + at) / 4u] = quad;
    }
}
#else
fn state_quad(inside: bool, own: u32, at: u32) -> vec4<f32> {
    var quad = vec4<f32>();
    for (var j = 0u; j < 4u && inside && at + j < p.width; j++) {
        quad[j] = state[own + at + j];
    }
    return quad;
}

fn keep(own: u32, at: u32, quad: vec4<f32>) {
    for (var j = 0u; j < 4u && at + j < p.width; j++) {
        state[own + at + j] = quad[j];
    }
}
#endif
