// A row's products with an input of p.cols values: LANES invocations go down a row of a matrix, each taking every LANES-th part. The
// including kernel has declared the weights with their format; ROW_COLS are the values of a row of the matrix, where those are
// not as many; SHIFT the quads of the input in front of those that a row is multiplied with, where rows differ in that.
#if !ROW_COLS
#define ROW_COLS p.cols
#endif
#if !SHIFT
#define SHIFT 0u
#endif
#if MAKES_INPUT && !DOT8 && !QUADS
#define INPUTS array<f32>
#elif ROUNDED_X
#define INPUTS array<vec4<u32>>
#else
#define INPUTS array<vec4<f32>>
#endif
@group(0) @binding(B_X) var<storage, read> x: INPUTS; // [cols]
#if B_JOINED
@group(0) @binding(B_JOINED) var<storage, read> joined: INPUTS; // [what is behind x]
#endif
#if B_BEFORE
@group(0) @binding(B_BEFORE) var<storage, read> before: INPUTS; // [cols]
#endif
#if B_AFTER
@group(0) @binding(B_AFTER) var<storage, read> after: INPUTS; // [cols]
#endif
#if B_NORM_WEIGHT
@group(0) @binding(B_NORM_WEIGHT) var<storage, read> norm_weight: INPUTS; // [cols] or [group]
#endif
const THREADS = 256u;
var<workgroup> partial: array<f32, THREADS>;

#if ROUNDED_X
// The input came rounded: three of these a group, as input8.wgsl has them.
fn rounded(i: u32) -> vec4<u32> {
    return x[p.x_offset / 4u + i];
}
#elif DOT8
#include "kernels/product/input8.wgsl"
fn rounded(i: u32) -> vec4<u32> {
    return made[i + SHIFT / 8u * 3u];
}
#elif MAKES_INPUT
#include "kernels/product/input32.wgsl"
#else
#include "kernels/functions.wgsl"
fn quad_of_x(i: u32) -> vec4<f32> {
    return x[p.x_offset / 4u + i + SHIFT];
}
#endif

#if DOT8
fn part(base: u32, g: u32, at: u32) -> f32 {
    let w = group(base, ROW_COLS / 32u, g);
    let q0 = rounded(3u * at);
    let q1 = rounded(3u * at + 1u);
    let of_group = bitcast<vec4<f32>>(rounded(3u * at + 2u));
    let lo = dot4I8Packed(w.lo.x, q0.x) + dot4I8Packed(w.lo.y, q0.y) + dot4I8Packed(w.lo.z, q0.z) + dot4I8Packed(w.lo.w, q0.w);
    let hi = dot4I8Packed(w.hi.x, q1.x) + dot4I8Packed(w.hi.y, q1.y) + dot4I8Packed(w.hi.z, q1.z) + dot4I8Packed(w.hi.w, q1.w);
#if FORMAT_HALVES
    var sum = of_group.x * (w.d.x * f32(lo) + w.d.y * f32(hi));
#else
    var sum = of_group.x * w.d.x * f32(lo + hi);
#endif
#if FORMAT_OFFSETS
    sum += w.m.x * of_group.y + w.m.y * of_group.z;
#endif
    return sum;
}
#define PARTS (ROW_COLS / 32u)
#else
#include "kernels/product/part.wgsl"
#endif

#include "kernels/together.wgsl"
