// What all kernels of Mamba-3 share. Sizes are defines: HEADS, HEAD_DIM, D_STATE, RANK, ANGLES.
#include "kernels/common.wgsl"
#include "kernels/functions.wgsl"
#include "kernels/angles.wgsl"

struct Params {
    // Offsets in rows of `values`, which are `stride` long.
    stride: u32,
    x: u32,
    dt: u32,
    a: u32,
    trap: u32,
    angle: u32,
    // B and C, in `values` for a token and in `work` for blocks.
    b: u32,
    c: u32,
    bc_stride: u32,
    out_offset: u32,
    out_stride: u32,
    // Offsets in `small`; dt_bias is first.
    d: u32,
    b_bias: u32,
    c_bias: u32,
    mimo_x: u32,
    b_norm: u32,
    c_norm: u32,
    n_groups: u32,
    a_floor: f32,
    b_eps: f32,
    c_eps: f32,
    // Offsets in `work`, and rows of a chunk.
    steps: u32,
    angles: u32,
    states: u32,
    chunk: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if B_VALUES
@group(0) @binding(B_VALUES) var<storage, read> values: array<f32>; // [rows, stride]
#endif
#if B_SMALL
@group(0) @binding(B_SMALL) var<storage, read> small: array<f32>; // weights one after another
#endif

// A head's scalars at one row: the time step, the share of its input that counts now, and the rate, which is negative.
struct Scalars { dt: f32, trap: f32, rate: f32 }

#if B_VALUES && B_SMALL
fn positive_rate(a: f32) -> f32 {
#if HEAVY_TAIL
    return select(1.0 / (1.0 - min(a, 0.0)), 1.0 + a, a >= 0.0);
#else
    return softplus(a);
#endif
}

fn step_of(row: u32, head: u32) -> Scalars {
    let at = row * p.stride + head;
    let dt = softplus(values[at + p.dt] + small[head]);
    return Scalars(dt, sigmoid(values[at + p.trap]), -max(positive_rate(values[at + p.a]), p.a_floor));
}

// How far an angle turns on.
fn turn_of(row: u32, i: u32, dt: f32) -> f32 {
    return 3.141592653589793 * f_tanh(values[row * p.stride + p.angle + i], 0.0) * dt;
}

// The factor of a head's input channel for a rank.
fn mimo(head: u32, r: u32, channel: u32) -> f32 {
#if MIMO
    return small[p.mimo_x + (head * RANK + r) * HEAD_DIM + channel];
#else
    return 1.0;
#endif
}
#endif

// Where a state's pair is: its number, its other state, and whether it is the second of the two.
struct Pair { at: u32, other: u32, second: bool }

fn pair_of(n: u32) -> Pair {
#if HALVES
    let second = n >= D_STATE / 2u;
    let at = select(n, n - D_STATE / 2u, second);
    return Pair(at, select(n + D_STATE / 2u, at, second), second);
#else
    return Pair(n / 2u, n ^ 1u, (n & 1u) == 1u);
#endif
}

// A state's value turned, given its pair's other value and the angle's cosine and sine.
fn turned_by(pair: Pair, value: f32, other: f32, angle: vec2<f32>) -> f32 {
    return value * angle.x + other * select(-angle.y, angle.y, pair.second);
}
