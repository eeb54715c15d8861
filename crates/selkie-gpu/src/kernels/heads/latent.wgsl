// Beside the products: the turned part of each query, the key and the value of latent attention. The last workgroup makes the key
// and the value, the others 256 channels of queries each.
#include "kernels/reduce.wgsl"

@group(0) @binding(B_KV) var<storage, read> kv: array<f32>; // c and k_rope
@group(0) @binding(B_ANGLES) var<storage, read> angles: array<vec2<f32>>; // [rows, PAIRS]
#if B_NORM_WEIGHT
@group(0) @binding(B_NORM_WEIGHT) var<storage, read> norm_weight: array<f32>; // [head_out]
#endif

// Which channel a pair's other one is, and whether this one is the second.
struct Pair { at: u32, other: u32, second: bool }

fn pair_of(channel: u32) -> Pair {
#if INTERLEAVED
    return Pair(channel / 2u, channel ^ 1u, (channel & 1u) == 1u);
#else
    let second = channel >= PAIRS;
    let at = select(channel, channel - PAIRS, second);
    return Pair(at, select(channel + PAIRS, at, second), second);
#endif
}

fn turned_by(pair: Pair, value: f32, other: f32) -> f32 {
    let angle = angles[step.input * PAIRS + pair.at];
    return value * angle.x + other * select(-angle.y, angle.y, pair.second);
}

fn beside(which: u32, thread: u32) {
    let queries = (p.n_heads * p.turned + THREADS - 1u) / THREADS;
    if which < queries {
        let i = which * THREADS + thread;
        if i >= p.n_heads * p.turned {
            return;
        }
        let start = p.q_rope + i / p.turned * p.turned;
        let channel = i % p.turned;
        var v = x[start + channel];
        if channel < 2u * PAIRS {
            let pair = pair_of(channel);
            v = turned_by(pair, v, x[start + pair.other]);
        }
        out[p.out_offset + i / p.turned * p.out_head + p.head_out + channel] = v;
        return;
    }
    var square = 0.0;
    for (var i = thread; i < p.head_out; i += THREADS) {
        square += kv[p.c + i] * kv[p.c + i];
    }
    let factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(p.head_out) + p.eps);
    for (var i = thread; i < p.head_out; i += THREADS) {
        var v = kv[p.c + i] * factor;
#if B_NORM_WEIGHT
        v *= norm_weight[i];
#endif
        out[p.k_out + i] = v;
        out[p.v_out + i] = v;
    }
    for (var channel = thread; channel < p.turned; channel += THREADS) {
        var v = kv[p.k_rope + channel];
        if channel < 2u * PAIRS {
            let pair = pair_of(channel);
            v = turned_by(pair, v, kv[p.k_rope + pair.other]);
        }
        out[p.k_out + p.head_out + channel] = v;
    }
}
