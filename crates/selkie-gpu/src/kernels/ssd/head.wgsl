// What Mamba-2's recurrence and MBJS's complex one (COMPLEX: states are pairs, real and imaginary) have in common: a row's
// x | B | C, and what a step does to a head's states, `s = decay · s + input · B · x`.
#include "kernels/common.wgsl"
#include "kernels/functions.wgsl"
#if COMPLEX
#include "kernels/angles.wgsl"
#endif

struct Params {
    n_heads: u32,
    head_dim: u32,
    n_groups: u32,
    width: u32, // of B, of C and of a channel's states
    x_offset: u32,
    x_stride: u32,
    dt_offset: u32,
    dt_stride: u32,
    out_offset: u32,
    out_stride: u32,
    dt_min: f32,
    dt_max: f32,
    scale_input: u32,
    dt_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_DT) var<storage, read> dt: array<f32>; // [rows, n_heads], before the softplus
@group(0) @binding(B_HEADS) var<storage, read> heads: array<f32>; // a [n_heads] or a_log [n_heads, 2], d, dt_bias [n_heads]

// What a step does to all states of a head.
struct Factors {
    log_decay: f32,
    angle: f32, // that states turn by
    input: vec2<f32>, // a complex number, or a scale and nothing
}

fn d_of(head: u32) -> f32 {
#if COMPLEX
    return heads[2u * p.n_heads + head];
#else
    return heads[p.n_heads + head];
#endif
}

// e^x - 1 with all its digits where x is small.
fn grown_by(x: f32) -> f32 {
    let small = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))));
    return select(exp(x) - 1.0, small, abs(x) < 0.3);
}

fn step_of(row: u32, head: u32) -> Factors {
    let raw = p.dt_scale * dt[p.dt_offset + (step.first + row) * p.dt_stride + head];
#if COMPLEX
    let size = softplus(raw + heads[3u * p.n_heads + head]);
    let m = vec2<f32>(heads[2u * head], heads[2u * head + 1u]);
    // (e^(size m) - 1) · e^-m, with the difference formed so that it keeps its digits.
    let turn = cos_sin_less(size * m.y);
    let grown = grown_by(size * m.x);
    let less = vec2<f32>(grown * turn.x + turn.z, (grown + 1.0) * turn.y);
    let back = exp(-m.x) * cos_sin(-m.y);
    return Factors(size * m.x, size * m.y, complex_product(less, back));
#else
    let size = clamp(softplus(raw + heads[2u * p.n_heads + head]), p.dt_min, p.dt_max);
    return Factors(size * heads[head], 0.0, vec2<f32>(select(1.0, size, p.scale_input != 0u), 0.0));
#endif
}

fn complex_product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// Four states, or two pairs, by a factor.
fn quad_product(v: vec4<f32>, by: vec2<f32>) -> vec4<f32> {
#if COMPLEX
    return vec4<f32>(complex_product(v.xy, by), complex_product(v.zw, by));
#else
    return v * by.x;
#endif
}

// Where a row's B begins in x | B | C; C begins `n_groups · width` later.
fn b_start(row: u32, head: u32) -> u32 {
    let group = head * p.n_groups / p.n_heads;
    return p.x_offset + (step.first + row) * p.x_stride + p.n_heads * p.head_dim + group * p.width;
}

fn x_start(row: u32, head: u32) -> u32 {
    return p.x_offset + (step.first + row) * p.x_stride + head * p.head_dim;
}

// Four values of x | B | C from `start + i`, of which the first `end` count. QUADS: all of it lies in whole quads.
#if QUADS
@group(0) @binding(B_XBC) var<storage, read> xbc: array<vec4<f32>>; // [rows, n_heads · head_dim + 2 · n_groups · width]

fn xbc_at(i: u32) -> f32 {
    return xbc[i / 4u][i % 4u];
}

fn xbc_quad(start: u32, i: u32, end: u32) -> vec4<f32> {
    return xbc[(start + i) / 4u];
}
#else
@group(0) @binding(B_XBC) var<storage, read> xbc: array<f32>; // [rows, n_heads · head_dim + 2 · n_groups · width]

fn xbc_at(i: u32) -> f32 {
    return xbc[i];
}

fn xbc_quad(start: u32, i: u32, end: u32) -> vec4<f32> {
    var quad = vec4<f32>();
    for (var j = 0u; j < 4u && i + j < end; j++) {
        quad[j] = xbc[start + i + j];
    }
    return quad;
}
#endif
