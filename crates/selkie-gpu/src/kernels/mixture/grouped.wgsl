// Products of rows with the experts that they chose: a tile is rows of one expert with 64 rows of its matrix. Workgroups take
// tiles of the sorted list in turns, as many as there are.
#include "kernels/common.wgsl"

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
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, cols]; of the last product [choices, cols]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"
#if STAGE == pairs
#define PAIRS
#endif
#include "kernels/product/tile_sums.wgsl"
#if STAGE != down
#include "kernels/mixture/gating.wgsl"
#endif

// Of the tile at hand: its expert, and its part of the list.
var<private> expert: u32;
var<private> start: u32;
var<private> end: u32;

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

fn store(at: u32, i: u32, sum: f32) {
#if STAGE == down && B_SMALL
    out[at + i] = sum + small[expert * p.out_stride + i];
#elif STAGE == down
    out[at + i] = sum;
#elif STAGE == gates
    out[at + i] = gate_with_bias(expert, i, sum);
#elif STAGE == gated
    out[at + i] = gating(gates[at + i], up_with_bias(expert, i, sum));
#elif STAGE == single
    out[at + i] = gating(up_with_bias(expert, i, sum), 1.0);
#endif
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tiles = sorted[0];
    for (var tile = id.y; tile < tiles; tile += n.y) {
        expert = sorted[1u + 3u * tile];
        start = sorted[2u + 3u * tile];
        end = sorted[3u + 3u * tile];
        // The expert's rows in the chunk; those before it are past every end.
        let base = expert * p.expert_rows - p.first;
        let first = base + id.x * TILE;
        let own_end = u32(clamp(i32(base + p.expert_rows), 0, i32(p.rows)));
        if first >= own_end && first + TILE - 1u >= own_end {
            continue;
        }
        var sums = array<vec4<f32>, PER_T>();
        sum_tile(&sums, first, own_end, thread);
        for (var i = 0u; i < PER_T; i++) {
            let t = start + thread / 16u + 16u * i;
            if t >= end {
                continue;
            }
            let at = sorted[p.list + t] * p.out_stride;
            for (var j = 0u; j < 4u; j++) {
                let row = first + row_of_sum(thread % 16u, j);
                if row >= own_end {
                    continue;
                }
#if STAGE == pairs
                if j % 2u == 0u {
                    let h = (row - base) / 2u;
                    let gate = gate_with_bias(expert, h, sums[i][j]);
                    out[at + h] = gating(gate, up_with_bias(expert, h, sums[i][j + 1u]));
                }
#else
                store(at, row - base, sums[i][j]);
#endif
            }
        }
    }
}
