// Mamba-1's recurrence over rows: a workgroup for CHANNELS channels and a chunk of CHUNK rows, LANES invocations a channel, each
// with EACH quads of its states. Chunks first run from zero, for where they end (PASS == ends); carry.wgsl makes of that where
// each starts; then they run again from there (PASS == outputs). A sequence of one chunk starts from its state at once.
#include "kernels/common.wgsl"

struct Params {
    channels: u32,
    x_offset: u32,
    x_stride: u32,
    dt_offset: u32,
    dt_stride: u32,
    b_offset: u32,
    b_stride: u32,
    c_offset: u32,
    c_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, channels]
@group(0) @binding(B_DT) var<storage, read> dt: array<f32>; // [rows, channels]
@group(0) @binding(B_B) var<storage, read> b: array<f32>; // [rows, D_STATE]
#if PASS == ends
@group(0) @binding(B_ENDS) var<storage, read_write> ends: array<vec4<f32>>; // [chunks, channels, QUADS]
@group(0) @binding(B_TIMES) var<storage, read_write> times: array<f32>; // [chunks, channels]: sums of step sizes
#else
@group(0) @binding(B_C) var<storage, read> c: array<f32>; // [rows, D_STATE]
@group(0) @binding(B_STARTS) var<storage, read> starts: array<vec4<f32>>; // [chunks, channels, QUADS]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, channels]
#endif
#include "kernels/scan/states.wgsl"
#include "kernels/functions.wgsl"

const THREADS = 64u;
const CHANNELS = THREADS / LANES;
const WIDTH = LANES * EACH;
// Of a tile of rows: x and step size, B and C, and each invocation's share of the outputs.
var<workgroup> inputs: array<vec2<f32>, TILE * CHANNELS>;
var<workgroup> tile_b: array<vec4<f32>, TILE * WIDTH>;
#if PASS == outputs
var<workgroup> tile_c: array<vec4<f32>, TILE * WIDTH>;
var<workgroup> sums: array<f32, TILE * THREADS>;
#endif

// A step size of 0 leaves states as they are: rows past the end have it.
fn load(tile: u32, end: u32, first_channel: u32, thread: u32) {
    for (var i = thread; i < TILE * CHANNELS; i += THREADS) {
        let row = tile + i / CHANNELS;
        let channel = first_channel + i % CHANNELS;
        var v = vec2<f32>();
        if row < end && channel < p.channels {
            v.x = x[p.x_offset + row * p.x_stride + channel];
            v.y = softplus(dt[p.dt_offset + row * p.dt_stride + channel]);
        }
        inputs[i] = v;
    }
    for (var i = thread; i < TILE * WIDTH; i += THREADS) {
        let row = tile + i / WIDTH;
        let n = 4u * (i % WIDTH);
        var b_quad = vec4<f32>();
        var c_quad = vec4<f32>();
        if row < end {
            for (var j = 0u; j < 4u && n + j < D_STATE; j++) {
                b_quad[j] = b[p.b_offset + row * p.b_stride + n + j];
#if PASS == outputs
                c_quad[j] = c[p.c_offset + row * p.c_stride + n + j];
#endif
            }
        }
        tile_b[i] = b_quad;
#if PASS == outputs
        tile_c[i] = c_quad;
#endif
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_channel = id.x * CHANNELS;
    let channel = first_channel + thread / LANES;
    let lane = thread % LANES;
    let chunk = id.y;
    let first = step.first + chunk * CHUNK;
    let end = step.first + min((chunk + 1u) * CHUNK, step.own);
    let is_last = (chunk + 1u) * CHUNK >= step.own;
#if PASS == ends
    // Nobody starts where the last chunk ends.
    if is_last {
        return;
    }
    var time = 0.0;
#endif
    var a: array<vec4<f32>, EACH>;
    var h: array<vec4<f32>, EACH>;
    for (var e = 0u; e < EACH; e++) {
        let quad = lane + e * LANES;
        a[e] = vec4<f32>();
        h[e] = vec4<f32>();
        if channel < p.channels && quad < QUADS {
            a[e] = a_quad(channel, quad);
#if PASS == outputs
            if step.own > CHUNK {
                h[e] = starts[(chunk * p.channels + channel) * QUADS + quad];
            } else {
                h[e] = state_quad(channel, quad);
            }
#endif
        }
    }
    for (var tile = first; tile < end; tile += TILE) {
        load(tile, end, first_channel, thread);
        workgroupBarrier();
        for (var r = 0u; r < TILE; r++) {
            let v = inputs[r * CHANNELS + thread / LANES];
            var sum = 0.0;
            for (var e = 0u; e < EACH; e++) {
                let at = r * WIDTH + lane + e * LANES;
                h[e] = next_state(h[e], v.y, a[e], v.x * tile_b[at]);
#if PASS == outputs
                sum += dot(tile_c[at], h[e]);
#endif
            }
#if PASS == outputs
            sums[r * THREADS + thread] = sum;
#else
            time += v.y;
#endif
        }
        workgroupBarrier();
#if PASS == outputs
        for (var i = thread; i < TILE * CHANNELS; i += THREADS) {
            let row = tile + i / CHANNELS;
            let to = first_channel + i % CHANNELS;
            if row < end && to < p.channels {
                var sum = d_of(to) * inputs[i].x;
                for (var l = 0u; l < LANES; l++) {
                    sum += sums[i * LANES + l];
                }
                out[p.out_offset + row * p.out_stride + to] = sum;
            }
        }
        workgroupBarrier();
#endif
    }
    if channel >= p.channels {
        return;
    }
    for (var e = 0u; e < EACH; e++) {
        let quad = lane + e * LANES;
        if quad >= QUADS {
            continue;
        }
#if PASS == ends
        ends[(chunk * p.channels + channel) * QUADS + quad] = h[e];
#else
        if is_last && step.done == 0u {
            keep_state(channel, quad, h[e]);
        }
#endif
    }
#if PASS == ends
    if lane == 0u {
        times[chunk * p.channels + channel] = time;
    }
#endif
}
