// Products of one row with many: out[r] = weights[r] . input. LANES invocations go down a row of the matrix, each taking every
// LANES-th group of 32, of AT_ONCE rows at a time. The input is made once a workgroup: in f32, or (DOT8) rounded to 8 bits.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32,
    first: u32, // the chunk's first row
    rows: u32, // its rows
    row_words: u32,
    per_group: u32, // rows of a workgroup
    x_offset: u32,
    out_offset: u32,
    group: u32,
    before_offset: u32,
    after_offset: u32,
    eps: f32,
    scale: f32,
    before_c: f32,
    after_c: f32,
    other_offset: u32,
    then_scale: f32,
#if OWN_INPUTS
    row_cols: u32,
    // Of products with inputs of their own: the row that each starts with, and the quads in front of its input.
    starts: vec4<u32>,
    shifts: vec4<u32>,
#endif
}
@group(0) @binding(0) var<uniform> p: Params;
#if ROUND
@group(0) @binding(B_OUT) var<storage, read_write> out: array<vec4<u32>>; // [width / 32, 3], as input8.wgsl has them
#else
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [width]
#endif
#if B_BIAS
@group(0) @binding(B_BIAS) var<storage, read> bias: array<f32>; // [rows of the matrix]
#endif
#if B_OTHER
@group(0) @binding(B_OTHER) var<storage, read> other: array<f32>; // [width]: the residual, or gates
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#if OWN_INPUTS
var<private> shift: u32;
#define SHIFT shift
#define ROW_COLS p.row_cols
#endif
#include "kernels/product/lanes.wgsl"
#if ROUND
#include "kernels/product/round.wgsl"

// Rows after which results are rounded and stored: whole groups of 32.
const FLUSH = max(64u, 2u * (THREADS / LANES));
var<workgroup> results: array<f32, FLUSH / 2u>;

fn flush(thread: u32, first: u32) {
    workgroupBarrier();
    let at = thread % (FLUSH / 8u) * 4u;
    let v = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
    let r = rounded_quad(thread, v);
    let g = (p.first + first) / 64u + thread / 8u;
    if thread < FLUSH / 8u && first + thread / 8u * 64u < p.rows {
        let to = p.out_offset / 4u + 3u * g;
        let within = thread % 8u;
        out[to + within / 4u][within % 4u] = r.quad;
        if within == 0u {
            out[to + 2u].x = bitcast<u32>(r.scale);
            out[to + 2u].y = bitcast<u32>(r.sum);
        } else if within == 4u {
            out[to + 2u].z = bitcast<u32>(r.sum);
        }
    }
    workgroupBarrier();
}
#endif

fn with_bias(row: u32, sum: f32) -> f32 {
#if B_BIAS
    return sum + bias[p.first + row];
#else
    return sum;
#endif
}

#if !ROUND
fn store(row: u32, sum: f32) {
    let at = p.first + row;
#if THEN == add && OVER
    out[p.out_offset + at] = out[p.out_offset + at] + p.then_scale * with_bias(row, sum);
#elif THEN == add
    out[p.out_offset + at] = other[p.other_offset + at] + p.then_scale * with_bias(row, sum);
#elif THEN == gated
    out[p.out_offset + at] = THEN_FN(p.then_scale * other[p.other_offset + at], 0.0) * with_bias(row, sum);
#else
    out[p.out_offset + at] = with_bias(row, sum);
#endif
}

#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
#if MAKES_INPUT
    make_input(thread);
#endif
    let lane = thread % LANES;
    let first = group_index(id, n) * p.per_group;
    // Rows 2 i and 2 i + 1 are an invocation's: with GLU they are a gate and its up.
    let at_once = 2u * (THREADS / LANES);
    for (var r = 0u; r < p.per_group; r += at_once) {
        let row = first + r + 2u * (thread / LANES);
        // Rows come in fours on the device.
        let there = row < p.rows;
        let base = select(0u, row, there) * p.row_words;
#if OWN_INPUTS
        shift = p.shifts.x;
        for (var i = 1u; i < 4u; i++) {
            shift = select(shift, p.shifts[i], p.first + row >= p.starts[i]);
        }
#endif
        var even = 0.0;
        var odd = 0.0;
        var i = lane;
        // Two steps at once: more reads are on their way.
        for (; i + LANES < PARTS; i += 2u * LANES) {
            let next = i + LANES;
            let a = part(base, i, i);
            let b = part(base + p.row_words, i, i);
            let c = part(base, next, next);
            let d = part(base + p.row_words, next, next);
            even += a + c;
            odd += b + d;
        }
        if i < PARTS {
            even += part(base, i, i);
            odd += part(base + p.row_words, i, i);
        }
        even = together(thread, even);
        odd = together(thread, odd);
#if ROUND
        if lane == 0u {
            let value = THEN_FN(p.then_scale * with_bias(row, even), 0.0) * with_bias(row + 1u, odd);
            results[(r % FLUSH) / 2u + thread / LANES] = select(0.0, value, there);
        }
        if (r + at_once) % FLUSH == 0u {
            flush(thread, first + r + at_once - FLUSH);
        }
#else
        if lane == 0u && there {
#if THEN == glu
            out[p.out_offset + (p.first + row) / 2u] = THEN_FN(p.then_scale * with_bias(row, even), 0.0) * with_bias(row + 1u, odd);
#else
            store(row, even);
            store(row + 1u, odd);
#endif
        }
#endif
    }
}
