// Step sizes as a product of a short row, which each workgroup makes in its memory: nine quads of room for every eight, so that
// neighbours who read a group each meet other banks.
#include "quant/FORMAT.wgsl"

var<workgroup> short: array<vec4<f32>, GROUPS * 9u>;

fn quad_of_x(i: u32) -> vec4<f32> {
    return short[i / 8u * 9u + i % 8u];
}
#include "kernels/product/part.wgsl"

fn make_short(thread: u32) {
    var square = 0.0;
    for (var i = thread; i < GROUPS * 8u; i += THREADS) {
        var v = vec4<f32>();
        for (var j = 0u; j < 4u && 4u * i + j < p.cols; j++) {
            v[j] = low[p.dt_offset + 4u * i + j];
        }
        short[i / 8u * 9u + i % 8u] = v;
        square += dot(v, v);
    }
#if NORM_OF_LOW
    sums[thread] = square;
    workgroupBarrier();
    square = 0.0;
    for (var i = 0u; i < THREADS; i++) {
        square += sums[i];
    }
    let factor = 1.0 / sqrt(square / f32(p.cols) + p.low_eps);
    for (var i = thread; i < GROUPS * 8u; i += THREADS) {
        var w = vec4<f32>(factor);
#if LOW_WEIGHTED
        for (var j = 0u; j < 4u && 4u * i + j < p.cols; j++) {
            w[j] *= small[p.low_norm_at + 4u * i + j];
        }
#endif
        short[i / 8u * 9u + i % 8u] *= w;
    }
#endif
    workgroupBarrier();
}

// Before the softplus; each channel's invocations have it all.
fn step_size(thread: u32, channel: u32) -> f32 {
    make_short(thread);
    var sum = 0.0;
    for (var i = thread % LANES; i < PARTS; i += LANES) {
        sum += part(channel * p.row_words, i, i);
    }
    sums[thread] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < LANES; i++) {
        sum += sums[thread / LANES * LANES + i];
    }
    workgroupBarrier();
#if BIAS
    sum += small[channel];
#endif
    return sum;
}
