// The short causal convolution of each channel, of up to three inputs at once. An invocation takes a channel and ROWS rows, no
// fewer than the window has: only a channel's first invocation sees the window, and so may move it on.
#include "kernels/common.wgsl"
#include "kernels/functions.wgsl"

struct Params {
    channels: vec4<u32>, // of each input
    x_offset: vec4<u32>,
    out_offset: vec4<u32>,
    all: u32, // channels of all inputs
    x_stride: u32,
    out_stride: u32,
    silu: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, channels] of each input
@group(0) @binding(B_WEIGHT) var<storage, read> weight: array<f32>; // [all channels, TAPS], then biases [all channels]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, channels] of each input
@group(1) @binding(1) var<storage, read_write> window: array<f32>; // [TAPS - 1, channels], oldest first
#if CONVS > 1
@group(2) @binding(1) var<storage, read_write> second_window: array<f32>; // of the second input
#endif
#if CONVS > 2
@group(3) @binding(1) var<storage, read_write> third_window: array<f32>; // of the third
#endif
const BEFORE = TAPS - 1u;

fn kept(which: u32, at: u32) -> f32 {
#if CONVS > 2
    if which == 2u {
        return third_window[at];
    }
#endif
#if CONVS > 1
    if which == 1u {
        return second_window[at];
    }
#endif
    return window[at];
}

fn keep(which: u32, at: u32, value: f32) {
#if CONVS > 2
    if which == 2u {
        third_window[at] = value;
        return;
    }
#endif
#if CONVS > 1
    if which == 1u {
        second_window[at] = value;
        return;
    }
#endif
    window[at] = value;
}

fn x_at(which: u32, row: u32, channel: u32) -> f32 {
    return x[p.x_offset[which] + (step.first + row) * p.x_stride + channel];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let of_all = id.x * 64u + thread;
    let first = id.y * ROWS;
    if of_all >= p.all {
        return;
    }
    var which = 0u;
    var channel = of_all;
    while channel >= p.channels[which] {
        channel -= p.channels[which];
        which += 1u;
    }
    let channels = p.channels[which];
    var w: array<f32, TAPS>;
    // The rows before the one at hand, and that one last.
    var seen: array<f32, TAPS>;
    for (var k = 0u; k < TAPS; k++) {
        w[k] = weight[of_all * TAPS + k];
    }
    for (var k = 0u; k < BEFORE; k++) {
        if first == 0u {
            seen[k] = kept(which, k * channels + channel);
        } else {
            seen[k] = x_at(which, first + k - BEFORE, channel);
        }
    }
    let bias = weight[p.all * TAPS + of_all];
    for (var row = first; row < min(first + ROWS, step.own); row++) {
        seen[BEFORE] = x_at(which, row, channel);
        var sum = bias;
        for (var k = 0u; k < TAPS; k++) {
            sum += w[k] * seen[k];
        }
        for (var k = 0u; k < BEFORE; k++) {
            seen[k] = seen[k + 1u];
        }
        let to = p.out_offset[which] + (step.first + row) * p.out_stride + channel;
        out[to] = select(sum, f_silu(sum, 0.0), p.silu != 0u);
    }
    if first == 0u && step.done == 0u {
        // Fewer rows than the window has leave some of it there, further up.
        for (var k = 0u; k < BEFORE; k++) {
            let from_row = step.own + k;
            var value = 0.0;
            if from_row < BEFORE {
                value = kept(which, from_row * channels + channel);
            } else {
                value = x_at(which, from_row - BEFORE, channel);
            }
            keep(which, k * channels + channel, value);
        }
    }
}
