// Mamba-3 for one row: a workgroup a head. LANES invocations go along a row of the head's state [HEAD_DIM, D_STATE], in tiles of
// TILE states for which keys and queries of all ranks have room; B and C are normed, biased and turned here.
#include "kernels/mamba3/common.wgsl"

@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [HEADS, RANK, HEAD_DIM]
@group(1) @binding(1) var<storage, read_write> angles: array<f32>; // [HEADS, ANGLES]
#if D_STATE_ALIGNED
@group(1) @binding(2) var<storage, read_write> states: array<vec4<f32>>; // [HEADS, HEAD_DIM, D_STATE / 4]
#else
@group(1) @binding(2) var<storage, read_write> states: array<f32>; // [HEADS, HEAD_DIM, D_STATE]
#endif
@group(1) @binding(3) var<storage, read_write> last_k: array<f32>; // [HEADS, RANK, D_STATE]
@group(1) @binding(4) var<storage, read_write> last_x: array<f32>; // [HEADS, HEAD_DIM]

const THREADS = 256u;
const ROWS = THREADS / LANES;
// Invocations that sum the squares of one rank of B or C: all 2 * RANK at once.
const PER_NORM = THREADS / NORMS;
var<workgroup> partial: array<f32, THREADS>;
var<workgroup> factors: array<f32, NORMS>;
var<workgroup> turned: array<vec2<f32>, ANGLES + 1u>;
var<workgroup> keys: array<vec4<f32>, RANK * TILE / 4u>; // [RANK, TILE]
var<workgroup> older_keys: array<vec4<f32>, RANK * TILE / 4u>;
var<workgroup> queries: array<vec4<f32>, RANK * TILE / 4u>;

fn read_state(row: u32, quad: u32) -> vec4<f32> {
#if D_STATE_ALIGNED
    return states[row * (D_STATE / 4u) + quad];
#else
    var v = vec4<f32>();
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        v[j] = states[row * D_STATE + 4u * quad + j];
    }
    return v;
#endif
}

fn write_state(row: u32, quad: u32, v: vec4<f32>) {
#if D_STATE_ALIGNED
    states[row * (D_STATE / 4u) + quad] = v;
#else
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        states[row * D_STATE + 4u * quad + j] = v[j];
    }
#endif
}

// Where B of a rank starts (side 0), or C (side 1).
fn start_of(side: u32, r: u32, head: u32) -> u32 {
    return select(p.b, p.c, side == 1u) + (r * p.n_groups + head * p.n_groups / HEADS) * D_STATE;
}

fn biased(side: u32, r: u32, head: u32, n: u32) -> f32 {
    let bias = small[select(p.b_bias, p.c_bias, side == 1u) + (head * RANK + r) * D_STATE + n];
    var v = values[start_of(side, r, head) + n] * factors[side * RANK + r];
#if B_WEIGHT
    v *= select(small[p.b_norm + n], 1.0, side == 1u);
#endif
#if C_WEIGHT
    v *= select(1.0, small[p.c_norm + n], side == 1u);
#endif
    return v + bias;
}

fn made(side: u32, r: u32, head: u32, n: u32) -> f32 {
    let v = biased(side, r, head, n);
    let pair = pair_of(n);
    if pair.at >= ANGLES {
        return v;
    }
    return turned_by(pair, v, biased(side, r, head, pair.other), turned[pair.at]);
}

// The factors of the norms of B and C, where they have some.
fn norm(thread: u32, head: u32) {
    let which = thread / PER_NORM;
    let side = which / RANK;
    var square = 0.0;
    if side < 2u {
        let start = start_of(side, which % RANK, head);
        for (var n = thread % PER_NORM; n < D_STATE; n += PER_NORM) {
            square += values[start + n] * values[start + n];
        }
    }
    partial[thread] = square;
    workgroupBarrier();
    for (var half = PER_NORM / 2u; half > 0u; half >>= 1u) {
        if thread % PER_NORM < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    if thread % PER_NORM == 0u {
        let mean = partial[thread] / f32(D_STATE);
        let factor = 1.0 / sqrt(mean + select(p.b_eps, p.c_eps, side == 1u));
        let normed = select(B_NORMED, C_NORMED, side == 1u);
        factors[which] = select(1.0, factor, normed);
    }
}

// Factors of norms, cosines and sines.
fn prepare(thread: u32, head: u32, dt: f32) {
    norm(thread, head);
    for (var i = thread; i < ANGLES; i += THREADS) {
        let angle = less_turns(angles[head * ANGLES + i] + turn_of(0u, i, dt));
        turned[i] = cos_sin(angle);
        if step.done == 0u {
            angles[head * ANGLES + i] = angle;
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let head = group_index(id, groups);
    let scalars = step_of(0u, head);
    let decay = exp(scalars.dt * scalars.rate);
    let now = scalars.trap * scalars.dt;
    let before = decay * (1.0 - scalars.trap) * scalars.dt;

    for (var first = 0u; first < HEAD_DIM; first += ROWS) {
        let channel = first + thread / LANES;
        let there = channel < HEAD_DIM;
        let row = head * HEAD_DIM + channel;
        var x = 0.0;
        var older_x = 0.0;
        if there {
            x = values[p.x + row];
            older_x = last_x[row];
        }
        // For each rank, what multiplies the older key and the new one.
        var inputs: array<vec2<f32>, RANK>;
        var sums: array<f32, RANK>;
        for (var r = 0u; r < RANK; r++) {
            inputs[r] = vec2<f32>();
            if there {
                inputs[r] = mimo(head, r, channel) * vec2<f32>(before * older_x, now * x);
            }
            sums[r] = 0.0;
        }
        for (var tile = 0u; tile < D_STATE; tile += TILE) {
            // All of the states are on their way before anything waits for them.
            var held: array<vec4<f32>, EACH>;
            for (var i = 0u; i < EACH; i++) {
                let quad = thread % LANES + i * LANES;
                held[i] = vec4<f32>();
                if there && quad < TILE / 4u && tile + 4u * quad < D_STATE {
                    held[i] = read_state(row, tile / 4u + quad);
                }
            }
            if first == 0u && tile == 0u {
                prepare(thread, head, scalars.dt);
            }
            // One tile stays as it is for all rows.
            if first == 0u || TILE < D_STATE {
                for (var i = thread; i < RANK * TILE; i += THREADS) {
                    let r = i / TILE;
                    let n = tile + i % TILE;
                    var k = 0.0;
                    var older_k = 0.0;
                    var q = 0.0;
                    if n < D_STATE {
                        k = made(0u, r, head, n);
                        q = made(1u, r, head, n);
                        older_k = last_k[(head * RANK + r) * D_STATE + n];
                        if (first + ROWS >= HEAD_DIM || TILE >= D_STATE) && step.done == 0u {
                            last_k[(head * RANK + r) * D_STATE + n] = k;
                        }
                    }
                    keys[i / 4u][i % 4u] = k;
                    older_keys[i / 4u][i % 4u] = older_k;
                    queries[i / 4u][i % 4u] = q;
                }
                workgroupBarrier();
            }
            for (var i = 0u; i < EACH; i++) {
                let quad = thread % LANES + i * LANES;
                if there && quad < TILE / 4u && tile + 4u * quad < D_STATE {
                    var s = decay * held[i];
                    for (var r = 0u; r < RANK; r++) {
                        let at = r * (TILE / 4u) + quad;
                        s += inputs[r].x * older_keys[at] + inputs[r].y * keys[at];
                    }
                    for (var r = 0u; r < RANK; r++) {
                        sums[r] += dot(s, queries[r * (TILE / 4u) + quad]);
                    }
                    if step.done == 0u {
                        write_state(row, tile / 4u + quad, s);
                    }
                }
            }
            if TILE < D_STATE {
                workgroupBarrier();
            }
        }
        for (var r = 0u; r < RANK; r++) {
            partial[thread] = sums[r];
            storageBarrier();
            workgroupBarrier();
            if thread % LANES == 0u && there {
                var y = small[p.d + head] * mimo(head, r, channel) * x;
                for (var lane = 0u; lane < LANES; lane++) {
                    y += partial[thread + lane];
                }
                out[p.out_offset + (head * RANK + r) * HEAD_DIM + channel] = y;
            }
            workgroupBarrier();
        }
        if thread % LANES == 0u && there && step.done == 0u {
            last_x[row] = x;
        }
    }
}
