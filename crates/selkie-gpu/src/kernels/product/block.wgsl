// Products of rows with rows: out[t, r] = weights[r] . x[t]. A workgroup makes a tile of 64 x 64 sums from tiles of 64 x 32 of
// both, unpacked into workgroup memory; an invocation sums 4 x 4.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32,
    first: u32, // the chunk's first row
    rows: u32, // its rows, up to the last that is multiplied
    begin: u32, // the first that is
    row_words: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
    other_offset: u32,
    other_stride: u32,
    then_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, width]
#if B_BIAS
@group(0) @binding(B_BIAS) var<storage, read> bias: array<f32>; // [rows of the matrix]
#endif
#if B_OTHER
@group(0) @binding(B_OTHER) var<storage, read> other: array<f32>; // [rows, width]: the residual, or gates
#endif
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, cols]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "kernels/functions.wgsl"
#include "quant/FORMAT.wgsl"
#define TILE_T 64u
#if THEN == glu
#define PAIRS
#endif
#include "kernels/product/tile_sums.wgsl"

const NO_ROW = 0xffffffffu;
var<private> first_t: u32;

fn x_row(t: u32) -> u32 {
    return select(NO_ROW, p.x_offset + (first_t + t) * p.x_stride, first_t + t < step.ROWS);
}

fn with_bias(row: u32, sum: f32) -> f32 {
#if B_BIAS
    return sum + bias[p.first + row];
#else
    return sum;
#endif
}

fn store(t: u32, row: u32, sum: f32) {
    let at = p.out_offset + t * p.out_stride + p.first + row;
#if THEN == add && OVER
    out[at] = out[at] + p.then_scale * with_bias(row, sum);
#elif THEN == add
    out[at] = other[p.other_offset + t * p.other_stride + p.first + row] + p.then_scale * with_bias(row, sum);
#elif THEN == gated
    out[at] = THEN_FN(p.then_scale * other[p.other_offset + t * p.other_stride + p.first + row], 0.0) * with_bias(row, sum);
#else
    out[at] = with_bias(row, sum);
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_row = p.begin + id.x * TILE;
    first_t = id.y * TILE;
    let tx = thread % 16u;
    var sums: array<vec4<f32>, PER_T>;
    sum_tile(&sums, first_row, p.rows, thread);
    for (var i = 0u; i < PER_T; i++) {
        let t = first_t + thread / 16u + 16u * i;
        if t >= step.ROWS {
            continue;
        }
#if PAIRS
        for (var j = 0u; j < 4u; j += 2u) {
            let row = first_row + row_of_sum(tx, j);
            if row < p.rows {
                let gate = with_bias(row, sums[i][j]);
                let up = with_bias(row + 1u, sums[i][j + 1u]);
                out[p.out_offset + t * p.out_stride + (p.first + row) / 2u] = THEN_FN(p.then_scale * gate, 0.0) * up;
            }
        }
#else
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + row_of_sum(tx, j);
            if row < p.rows {
                store(t, row, sums[i][j]);
            }
        }
#endif
    }
}
