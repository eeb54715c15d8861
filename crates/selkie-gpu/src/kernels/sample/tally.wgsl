// Every token's rank, and how many tokens of which mass there are in each bin of ranks.
#include "kernels/sample/choice.wgsl"
#include "kernels/sample/order.wgsl"
#include "kernels/sample/sums.wgsl"

struct Params {
    offset: u32,
    width: u32,
    chunks: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_LOGITS) var<storage, read> logits: array<u32>; // [width] from offset
@group(0) @binding(B_PARTS) var<storage, read> parts: array<vec2<u32>>; // [chunks]: order, id
@group(0) @binding(B_RANKS) var<storage, read_write> ranks: array<u32>; // [width]
// Tokens gathered, the whole mass in two words, and for each bin a count and the same.
@group(0) @binding(B_TALLY) var<storage, read_write> tally: array<atomic<u32>>;

var<workgroup> largest: array<u32, THREADS>;
var<workgroup> bins: array<atomic<u32>, 3u * BINS>;
var<workgroup> total: array<atomic<u32>, 2>;

// Adds to a sum that other workgroups add to.
fn add(count_at: u32, mass_at: u32, sum: Sum) {
    atomicAdd(&tally[count_at], sum.count);
    let old = atomicAdd(&tally[mass_at], sum.low);
    atomicAdd(&tally[mass_at + 1u], sum.high + select(0u, 1u, old + sum.low < old));
}

// logit / temperature, as a division rounds it.
fn divided(logit: f32) -> f32 {
    let inverse = 1.0 / choice.temperature;
    let q = logit * inverse;
    return fma(fma(-q, choice.temperature, logit), inverse, q);
}

// The bits of e^x for x from -32 to 0: x = n ln 2 + f, the logarithm in a part of few bits and the rest.
fn exp_bits(x: f32) -> u32 {
    let n = round(x * 1.4426950408889634);
    let f = fma(n, 2.12194440054690583e-4, fma(n, -0.693359375, x));
    let tail = 0.5 + f * (1.0 / 6.0 + f * (1.0 / 24.0 + f * (1.0 / 120.0 + f * (1.0 / 720.0 + f * (1.0 / 5040.0)))));
    return bitcast<u32>(1.0 + (f + f * f * tail)) - (u32(-n) << 23u);
}

fn rank_of(bits: u32, top: f32, top_divided: f32) -> u32 {
    if order(bits) == 0u || bits == 0x7f800000u {
        return NONE;
    }
    let logit = bitcast<f32>(bits);
    if logit < top - choice.reach {
        return NONE;
    }
    let rank = ONE - min(exp_bits(min(divided(logit) - top_divided, 0.0)), ONE);
    // A likelihood of less than 2^-45 has no mass.
    return select(rank, NONE, rank > 45u << 23u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    for (var i = thread; i < 3u * BINS; i += THREADS) {
        atomicStore(&bins[i], 0u);
    }
    if thread < 2u {
        atomicStore(&total[thread], 0u);
    }
    var own = 0u;
    for (var i = thread; i < p.chunks; i += THREADS) {
        own = max(own, parts[i].x);
    }
    largest[thread] = own;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            largest[thread] = max(largest[thread], largest[thread + half]);
        }
        workgroupBarrier();
    }
    let top_bits = logit_bits(largest[0]);
    let top = bitcast<f32>(select(top_bits, 0u, largest[0] == 0u || top_bits == 0x7f800000u));
    let possible = largest[0] != 0u && top_bits != 0x7f800000u && abs(top) < choice.most;
    let top_divided = divided(top);
    var whole = Sum(0u, 0u, 0u);
    for (var i = id.x * CHUNK + thread; i < min((id.x + 1u) * CHUNK, p.width); i += THREADS) {
        var rank = NONE;
        if possible {
            rank = rank_of(logits[p.offset + i], top, top_divided);
        }
        if rank != NONE {
            let one = mass(rank);
            whole = plus(whole, one);
            if rank > choice.last_rank {
                rank = NONE;
            } else {
                let bin = 3u * (rank >> RANK_BITS);
                atomicAdd(&bins[bin], 1u);
                let old = atomicAdd(&bins[bin + 1u], one.low);
                atomicAdd(&bins[bin + 2u], one.high + select(0u, 1u, old + one.low < old));
            }
        }
        ranks[i] = rank;
    }
    let old = atomicAdd(&total[0], whole.low);
    atomicAdd(&total[1], whole.high + select(0u, 1u, old + whole.low < old));
    workgroupBarrier();
    if thread == 0u {
        add(3u, 1u, Sum(0u, atomicLoad(&total[0]), atomicLoad(&total[1])));
    }
    for (var bin = thread; bin < BINS; bin += THREADS) {
        let count = atomicLoad(&bins[3u * bin]);
        if count != 0u {
            let sum = Sum(count, atomicLoad(&bins[3u * bin + 1u]), atomicLoad(&bins[3u * bin + 2u]));
            add(4u + 3u * bin, 5u + 3u * bin, sum);
        }
    }
}
