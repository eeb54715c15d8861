// The short causal convolution of each channel. An invocation takes a channel and ROWS rows, no fewer than the window has: only
// a channel's first invocation sees the window, and so may move it on.
#include "kernels/common.wgsl"
#include "kernels/functions.wgsl"

struct Params {
    channels: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
    silu: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, channels]
@group(0) @binding(B_WEIGHT) var<storage, read> weight: array<f32>; // [channels, TAPS], then biases [channels]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, channels]
@group(1) @binding(1) var<storage, read_write> window: array<f32>; // [TAPS - 1, channels], oldest first
const BEFORE = TAPS - 1u;

fn x_at(row: u32, channel: u32) -> f32 {
    return x[p.x_offset + (step.first + row) * p.x_stride + channel];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = id.x * 64u + thread;
    let first = id.y * ROWS;
    if channel >= p.channels {
        return;
    }
    var w: array<f32, TAPS>;
    // The rows before the one at hand, and that one last.
    var seen: array<f32, TAPS>;
    for (var k = 0u; k < TAPS; k++) {
        w[k] = weight[channel * TAPS + k];
    }
    for (var k = 0u; k < BEFORE; k++) {
        if first == 0u {
            seen[k] = window[k * p.channels + channel];
        } else {
            seen[k] = x_at(first + k - BEFORE, channel);
        }
    }
    let bias = weight[p.channels * TAPS + channel];
    for (var row = first; row < min(first + ROWS, step.own); row++) {
        seen[BEFORE] = x_at(row, channel);
        var sum = bias;
        for (var k = 0u; k < TAPS; k++) {
            sum += w[k] * seen[k];
        }
        for (var k = 0u; k < BEFORE; k++) {
            seen[k] = seen[k + 1u];
        }
        out[p.out_offset + (step.first + row) * p.out_stride + channel] = select(sum, f_silu(sum, 0.0), p.silu != 0u);
    }
    if first == 0u && step.done == 0u {
        // Fewer rows than the window has leave some of it there, further up.
        for (var k = 0u; k < BEFORE; k++) {
            let from_row = step.own + k;
            if from_row < BEFORE {
                window[k * p.channels + channel] = window[from_row * p.channels + channel];
            } else {
                window[k * p.channels + channel] = x_at(from_row - BEFORE, channel);
            }
        }
    }
}
