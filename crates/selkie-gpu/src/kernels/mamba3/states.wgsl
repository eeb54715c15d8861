// Mamba-3 over rows, what a chunk adds to the state, sum of e^(l_end - l_s) * factor_s * x_s * k_s: a workgroup for 64 channels and
// 64 states of a head. All chunks but the last leave it for the next one; with LAST it is the last chunk's and makes the slot's
// new state.
#include "kernels/mamba3/block.wgsl"

#if LAST
@group(1) @binding(2) var<storage, read_write> states: array<f32>; // [HEADS, HEAD_DIM, D_STATE]
#endif
const TILE = 64u;
const SLICE = 16u;
var<workgroup> xs: array<f32, 1024>; // [SLICE, TILE]: 16 rows and ranks
var<workgroup> ks: array<f32, 1024>; // [SLICE, TILE]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n_tiles = (D_STATE + TILE - 1u) / TILE;
    let p_tiles = (HEAD_DIM + TILE - 1u) / TILE;
    let head = id.x / (n_tiles * p_tiles);
    let first_p = id.x / n_tiles % p_tiles * TILE;
    let first_n = id.x % n_tiles * TILE;
    let last_chunk = (step.own - 1u) / p.chunk;
#if LAST
    let chunk = last_chunk;
    if step.done != 0u {
        return;
    }
#else
    let chunk = id.y;
    if chunk >= last_chunk {
        return;
    }
#endif
    let start = chunk * p.chunk;
    let end = min(start + p.chunk, step.own);
    let log_end = scalar(end - 1u, head, 0u);
    let tx = thread % 16u;
    let ty = thread / 16u;
    var sums: array<vec4<f32>, 4>;
    for (var first = 0u; first < (end - start) * RANK; first += SLICE) {
        for (var i = thread; i < SLICE * TILE; i += 256u) {
            let row = start + (first + i / TILE) / RANK;
            let r = (first + i / TILE) % RANK;
            let channel = first_p + i % TILE;
            let n = first_n + i % TILE;
            var x = 0.0;
            var k = 0.0;
            if row < end && channel < HEAD_DIM {
                let weight = exp(min(log_end - scalar(row, head, 0u), 0.0)) * scalar(row, head, 1u);
                x = weight * input_of(row, r, head, channel);
            }
            if row < end && n < D_STATE {
                k = made(0u, row, r, head, n);
            }
            xs[i] = x;
            ks[i] = k;
        }
        workgroupBarrier();
        for (var m = 0u; m < SLICE; m++) {
            let at = m * TILE + tx;
            let k = vec4<f32>(ks[at], ks[at + 16u], ks[at + 32u], ks[at + 48u]);
            for (var i = 0u; i < 4u; i++) {
                sums[i] += xs[m * TILE + ty + 16u * i] * k;
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let channel = first_p + ty + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let n = first_n + tx + 16u * j;
            if channel >= HEAD_DIM || n >= D_STATE {
                continue;
            }
            let at = channel * D_STATE + n;
#if LAST
            let decay = exp(min(log_end, 0.0));
            if chunk == 0u {
                states[head * STATE + at] = decay * states[head * STATE + at] + sums[i][j];
            } else {
                states[head * STATE + at] = decay * work[state_at(chunk, head) + at] + sums[i][j];
            }
#else
            work[state_at(chunk + 1u, head) + at] = sums[i][j];
#endif
        }
    }
}
