// What the kernels of Mamba-3 over many rows share. `work` holds, each [rows of the batch, ..]: a head's scalars, the cosines and
// sines of its angles, B and C after their norms; and a state for each chunk of p.chunk rows but a sequence's first, whose state is the slot's own.
#include "kernels/mamba3/common.wgsl"

@group(0) @binding(B_WORK) var<storage, read_write> work: array<f32>;

const STATE = HEAD_DIM * D_STATE;

// A row's scalars of a head, rows counted in the sequence: 0 is the logarithm of the decay since the chunk began, this row's too;
// 1 the factor of its input for later rows; 2 that for itself.
fn scalar(row: u32, head: u32, which: u32) -> f32 {
    return work[p.steps + ((step.first + row) * HEADS + head) * 3u + which];
}

// The state that chunk `chunk`, which is not the first, finds.
fn state_at(chunk: u32, head: u32) -> u32 {
    return p.states + ((step.first / p.chunk + chunk - 1u) * HEADS + head) * STATE;
}

#if B_SMALL
fn biased(side: u32, row: u32, r: u32, head: u32, n: u32) -> f32 {
    let group = r * p.n_groups + head * p.n_groups / HEADS;
    let start = select(p.b, p.c, side == 1u) + (step.first + row) * p.bc_stride + group * D_STATE;
    return work[start + n] + small[select(p.b_bias, p.c_bias, side == 1u) + (head * RANK + r) * D_STATE + n];
}

// A state of a key (side 0) or query (side 1) of a row.
fn made(side: u32, row: u32, r: u32, head: u32, n: u32) -> f32 {
    let v = biased(side, row, r, head, n);
    let pair = pair_of(n);
    if pair.at >= ANGLES {
        return v;
    }
    let at = p.angles + (((step.first + row) * HEADS + head) * ANGLES + pair.at) * 2u;
    return turned_by(pair, v, biased(side, row, r, head, pair.other), vec2<f32>(work[at], work[at + 1u]));
}
#endif

#if B_VALUES && B_SMALL
// A channel of a row's input for a rank.
fn input_of(row: u32, r: u32, head: u32, channel: u32) -> f32 {
    return mimo(head, r, channel) * values[p.x + (step.first + row) * p.stride + head * HEAD_DIM + channel];
}
#endif
