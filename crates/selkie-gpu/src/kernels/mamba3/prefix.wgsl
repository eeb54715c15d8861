// Mamba-3 over rows, what runs along them: a workgroup a head makes the scalars and angles of all rows, adds to the state what the
// row before the first left for it, and writes all of the new state but the matrix.
#include "kernels/mamba3/block.wgsl"

@group(1) @binding(1) var<storage, read_write> angles: array<f32>; // [HEADS, ANGLES]
@group(1) @binding(2) var<storage, read_write> states: array<f32>; // [HEADS, HEAD_DIM, D_STATE]
@group(1) @binding(3) var<storage, read_write> last_k: array<f32>; // [HEADS, RANK, D_STATE]
@group(1) @binding(4) var<storage, read_write> last_x: array<f32>; // [HEADS, HEAD_DIM]

const THREADS = 256u;
// Angles that are summed at once, WIDE of them, and as many rows of an invocation in each 256.
const SEGMENTS = THREADS / WIDE;
var<workgroup> sums: array<f32, THREADS>;
var<workgroup> dts: array<f32, THREADS>;
#if ANGLES
var<workgroup> carries: array<f32, ANGLES>;
#endif

fn before(row: u32, head: u32) -> f32 {
    let s = step_of(step.first + row, head);
    return (1.0 - s.trap) * s.dt;
}

// The scalars of 256 rows.
fn scalars(first: u32, thread: u32, head: u32) {
    let row = first + thread;
    let at = p.steps + ((step.first + row) * HEADS + head) * 3u;
    var log = 0.0;
    var dt = 0.0;
    if row < step.own {
        let s = step_of(step.first + row, head);
        dt = s.dt;
        log = s.dt * s.rate;
        var later = s.trap * s.dt;
        if row + 1u < step.own {
            later += before(row + 1u, head);
        }
        work[at + 1u] = later;
        work[at + 2u] = s.trap * s.dt;
    }
    dts[thread] = dt;
    // Sums along each chunk, of which 256 rows are a multiple.
    sums[thread] = log;
    for (var over = 1u; over < p.chunk; over <<= 1u) {
        workgroupBarrier();
        if thread % p.chunk >= over {
            log += sums[thread - over];
        }
        workgroupBarrier();
        sums[thread] = log;
    }
    if row < step.own {
        work[at] = log;
    }
    workgroupBarrier();
}

#if ANGLES
// The angles of 256 rows: of WIDE rows each first, then with what all before them give.
fn turn(first: u32, thread: u32, head: u32) {
    for (var base = 0u; base < ANGLES; base += WIDE) {
        let i = base + thread % WIDE;
        let there = i < ANGLES;
        let start = first + thread / WIDE * WIDE;
        let end = select(start, min(start + WIDE, step.own), there);
        var sum = 0.0;
        for (var row = start; row < end; row++) {
            sum = less_turns(sum + turn_of(step.first + row, i, dts[row - first]));
        }
        sums[thread] = sum;
        workgroupBarrier();
        var angle = carries[min(i, ANGLES - 1u)];
        for (var segment = 0u; segment < thread / WIDE; segment++) {
            angle = less_turns(angle + sums[segment * WIDE + thread % WIDE]);
        }
        for (var row = start; row < end; row++) {
            angle = less_turns(angle + turn_of(step.first + row, i, dts[row - first]));
            let turned = cos_sin(angle);
            let at = p.angles + (((step.first + row) * HEADS + head) * ANGLES + i) * 2u;
            work[at] = turned.x;
            work[at + 1u] = turned.y;
        }
        workgroupBarrier();
        if there && thread / WIDE == SEGMENTS - 1u {
            carries[i] = angle;
        }
    }
}
#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let head = group_index(id, groups);
#if ANGLES
    for (var i = thread; i < ANGLES; i += THREADS) {
        carries[i] = angles[head * ANGLES + i];
    }
#endif
    for (var first = 0u; first < step.own; first += THREADS) {
        scalars(first, thread, head);
#if ANGLES
        turn(first, thread, head);
        workgroupBarrier();
#endif
    }
    if step.done != 0u {
        return;
    }
#if ANGLES
    for (var i = thread; i < ANGLES; i += THREADS) {
        angles[head * ANGLES + i] = carries[i];
    }
#endif
    let factor = before(0u, head);
    for (var i = thread; i < STATE; i += THREADS) {
        let channel = i / D_STATE;
        let x = last_x[head * HEAD_DIM + channel];
        var sum = 0.0;
        for (var r = 0u; r < RANK; r++) {
            sum += mimo(head, r, channel) * x * last_k[(head * RANK + r) * D_STATE + i % D_STATE];
        }
        states[head * STATE + i] += factor * sum;
    }
    storageBarrier();
    workgroupBarrier();
    let last = step.own - 1u;
    for (var i = thread; i < RANK * D_STATE; i += THREADS) {
        last_k[head * RANK * D_STATE + i] = made(0u, last, i / D_STATE, head, i % D_STATE);
    }
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        last_x[head * HEAD_DIM + i] = values[p.x + (step.first + last) * p.stride + head * HEAD_DIM + i];
    }
}
