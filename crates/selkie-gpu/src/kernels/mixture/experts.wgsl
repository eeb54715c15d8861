// What products of rows with the experts that they chose have in common.
struct Params {
    cols: u32,
    groups: u32,
    first: u32, // the stack's row that the chunk starts with
    rows: u32, // the chunk's rows
    row_words: u32,
    expert_rows: u32,
    list: u32, // where the sorted choices start
    first_row: u32,
    x_offset: u32,
    x_stride: u32,
    out_stride: u32,
    d_ff: u32,
    gate_bias: u32,
    up_bias: u32,
    alpha: f32,
    limit: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [choices, out_stride]
@group(0) @binding(B_SORTED) var<storage, read> sorted: array<u32>; // number of tiles, expert, start and end of each, the list
#if B_SMALL
@group(0) @binding(B_SMALL) var<storage, read> small: array<f32>; // biases
#endif
#if B_GATES
@group(0) @binding(B_GATES) var<storage, read> gates: array<f32>; // as out
#endif
// [rows, cols]; of the last product [choices, cols]
#if HALVES
@group(0) @binding(B_X) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(B_X) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#if STAGE != down
#include "kernels/mixture/gating.wgsl"
#endif

// Of the tile at hand: its expert, and its part of the list.
var<private> expert: u32;
var<private> start: u32;
var<private> end: u32;

const NO_ROW = 0xffffffffu;

// Where row t of the tile starts in x, or NO_ROW.
fn x_row(t: u32) -> u32 {
    if start + t >= end {
        return NO_ROW;
    }
    let which = sorted[p.list + start + t];
#if STAGE == down
    return which * p.x_stride;
#else
    return p.x_offset + (p.first_row + which / USED) * p.x_stride;
#endif
}

// What becomes of the sums of row i of the expert's matrix, and of the next, for the choice whose values start at `at`.
fn store(at: u32, i: u32, sum: f32, second: f32) {
#if STAGE == down && B_SMALL
    out[at + i] = sum + small[expert * p.out_stride + i];
#elif STAGE == down
    out[at + i] = sum;
#elif STAGE == pairs
    out[at + i / 2u] = gating(gate_with_bias(expert, i / 2u, sum), up_with_bias(expert, i / 2u, second));
#elif STAGE == gates
    out[at + i] = gate_with_bias(expert, i, sum);
#elif STAGE == gated
    out[at + i] = gating(gates[at + i], up_with_bias(expert, i, sum));
#elif STAGE == single
    out[at + i] = gating(up_with_bias(expert, i, sum), 1.0);
#endif
}

#if STAGE == pairs
const STORE_STEP = 2u;
#else
const STORE_STEP = 1u;
#endif
