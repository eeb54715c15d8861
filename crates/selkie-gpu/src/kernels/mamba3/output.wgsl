// Mamba-3 over rows, the results: a workgroup for the ROWS rows of a head that make 64 pairs of row and rank, and 64 channels. Rows
// read the state that their chunk found and, as masked products with tiles of as many rows, what came before them in it; a row
// meets its own input with the factor for itself.
#include "kernels/mamba3/block.wgsl"

@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, HEADS, RANK, HEAD_DIM]
@group(1) @binding(2) var<storage, read_write> states: array<f32>; // [HEADS, HEAD_DIM, D_STATE]

const TILE = 64u;
const SLICE = 16u;
// One more than a tile, so that what lies below each other is in different banks.
const PITCH = 65u;
var<workgroup> qs: array<f32, 1040>; // [SLICE, PITCH]: queries, then weights of a slice of inputs
var<workgroup> ks: array<f32, 1040>; // keys, then inputs
var<workgroup> ss: array<f32, 1040>; // the state

fn quad_of_q(m: u32, ty: u32) -> vec4<f32> {
    let at = m * PITCH + ty;
    return vec4<f32>(qs[at], qs[at + 16u], qs[at + 32u], qs[at + 48u]);
}

fn quad_of_k(m: u32, tx: u32) -> vec4<f32> {
    let at = m * PITCH + tx;
    return vec4<f32>(ks[at], ks[at + 16u], ks[at + 32u], ks[at + 48u]);
}

fn quad_of_s(m: u32, tx: u32) -> vec4<f32> {
    let at = m * PITCH + tx;
    return vec4<f32>(ss[at], ss[at + 16u], ss[at + 32u], ss[at + 48u]);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let p_tiles = (HEAD_DIM + TILE - 1u) / TILE;
    let head = id.x / p_tiles;
    let first_p = id.x % p_tiles * TILE;
    let first = id.y * ROWS;
    if first >= step.own {
        return;
    }
    let chunk = first / p.chunk;
    let tx = thread % 16u;
    let ty = thread / 16u;
    // Rows of this invocation's sums are ty + 16 i of the tile, columns tx + 16 j.
    var rows: array<u32, 4>;
    var logs: vec4<f32>;
    for (var i = 0u; i < 4u; i++) {
        let m = ty + 16u * i;
        rows[i] = select(step.own, first + m / RANK, m < ROWS * RANK);
        logs[i] = 0.0;
        if rows[i] < step.own {
            logs[i] = scalar(rows[i], head, 0u);
        }
    }
    var sums: array<vec4<f32>, 4>;
    // The tile itself first, and then those before it in the chunk.
    for (var turn = 0u; chunk * p.chunk + turn * ROWS <= first; turn++) {
        let own_tile = turn == 0u;
        let start = select(chunk * p.chunk + (turn - 1u) * ROWS, first, own_tile);
        var scores: array<vec4<f32>, 4>;
        for (var i = 0u; i < 4u; i++) {
            scores[i] = vec4<f32>();
        }
        for (var first_n = 0u; first_n < D_STATE; first_n += SLICE) {
            for (var i = thread; i < SLICE * TILE; i += 256u) {
                let n = first_n + i % SLICE;
                let m = i / SLICE;
                var q = 0.0;
                var k = 0.0;
                if n < D_STATE && m < ROWS * RANK {
                    if first + m / RANK < step.own {
                        q = made(1u, first + m / RANK, m % RANK, head, n);
                    }
                    if start + m / RANK < step.own {
                        k = made(0u, start + m / RANK, m % RANK, head, n);
                    }
                }
                qs[i % SLICE * PITCH + m] = q;
                ks[i % SLICE * PITCH + m] = k;
                if own_tile {
                    var s = 0.0;
                    if n < D_STATE && first_p + m < HEAD_DIM {
                        let at = (first_p + m) * D_STATE + n;
                        if chunk == 0u {
                            s = states[head * STATE + at];
                        } else {
                            s = work[state_at(chunk, head) + at];
                        }
                    }
                    ss[i % SLICE * PITCH + m] = s;
                }
            }
            workgroupBarrier();
            for (var n = 0u; n < SLICE; n++) {
                let q = quad_of_q(n, ty);
                let k = quad_of_k(n, tx);
                for (var i = 0u; i < 4u; i++) {
                    scores[i] += q[i] * k;
                }
                if own_tile {
                    let s = quad_of_s(n, tx);
                    for (var i = 0u; i < 4u; i++) {
                        sums[i] += q[i] * s;
                    }
                }
            }
            workgroupBarrier();
        }
        if own_tile {
            for (var i = 0u; i < 4u; i++) {
                sums[i] *= exp(min(logs[i], 0.0));
            }
        }
        // Inputs in slices of 16, which are one column of each invocation's scores.
        for (var j = 0u; j < 4u; j++) {
            let m = tx + 16u * j;
            let row = start + m / RANK;
            let there = row < step.own && m < ROWS * RANK;
            var log = 0.0;
            var later = 0.0;
            var itself = 0.0;
            if there {
                log = scalar(row, head, 0u);
                later = scalar(row, head, 1u);
                itself = scalar(row, head, 2u);
            }
            for (var i = 0u; i < 4u; i++) {
                var weight = select(0.0, exp(min(logs[i] - log, 0.0)) * later, row < rows[i]);
                weight = select(weight, itself, row == rows[i]);
                qs[tx * PITCH + ty + 16u * i] = scores[i][j] * weight;
            }
            for (var i = thread; i < SLICE * TILE; i += 256u) {
                let combined = 16u * j + i / TILE;
                let channel = first_p + i % TILE;
                var x = 0.0;
                if channel < HEAD_DIM && combined < ROWS * RANK && start + combined / RANK < step.own {
                    x = input_of(start + combined / RANK, combined % RANK, head, channel);
                }
                ks[i / TILE * PITCH + i % TILE] = x;
            }
            workgroupBarrier();
            for (var n = 0u; n < SLICE; n++) {
                let weight = quad_of_q(n, ty);
                let x = quad_of_k(n, tx);
                for (var i = 0u; i < 4u; i++) {
                    sums[i] += weight[i] * x;
                }
            }
            workgroupBarrier();
        }
    }
    for (var i = 0u; i < 4u; i++) {
        let m = ty + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let channel = first_p + tx + 16u * j;
            if rows[i] < step.own && channel < HEAD_DIM {
                let own = small[p.d + head] * input_of(rows[i], m % RANK, head, channel);
                let at = p.out_offset + (step.first + rows[i]) * p.out_stride + (head * RANK + m % RANK) * HEAD_DIM + channel;
                out[at] = sums[i][j] + own;
            }
        }
    }
}
