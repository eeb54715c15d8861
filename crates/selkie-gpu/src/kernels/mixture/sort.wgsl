// Choices (a row's k-th expert) sorted by expert, and the tiles of TILE_T of them at most that share an expert. One workgroup.
#include "kernels/common.wgsl"

struct Params {
    first_row: u32,
    most_rows: u32,
    list: u32, // where the sorted choices start
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_CHOICES) var<storage, read> choices: array<u32>; // [rows, USED]
@group(0) @binding(B_SORTED) var<storage, read_write> sorted: array<u32>; // number of tiles, tiles, the list: see grouped.wgsl

const THREADS = 256u;
const EACH = (EXPERTS + THREADS - 1u) / THREADS;
var<workgroup> counts: array<atomic<u32>, EXPERTS>;
var<workgroup> before: array<vec2<u32>, THREADS>; // choices and tiles of a thread's experts, and of those before it

fn tiles_of(count: u32) -> u32 {
    return (count + TILE_T - 1u) / TILE_T;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
    let n = min(step.ROWS - min(p.first_row, step.ROWS), p.most_rows) * USED;
    for (var e = thread; e < EXPERTS; e += THREADS) {
        atomicStore(&counts[e], 0u);
    }
    workgroupBarrier();
    for (var i = thread; i < n; i += THREADS) {
        atomicAdd(&counts[choices[i]], 1u);
    }
    workgroupBarrier();
    var own = vec2<u32>();
    for (var e = thread * EACH; e < min((thread + 1u) * EACH, EXPERTS); e++) {
        let count = atomicLoad(&counts[e]);
        own += vec2(count, tiles_of(count));
    }
    before[thread] = own;
    workgroupBarrier();
    for (var reach = 1u; reach < THREADS; reach <<= 1u) {
        var more = vec2<u32>();
        if thread >= reach {
            more = before[thread - reach];
        }
        workgroupBarrier();
        before[thread] += more;
        workgroupBarrier();
    }
    if thread == THREADS - 1u {
        sorted[0] = before[thread].y;
    }
    var start = before[thread].x - own.x;
    var tile = before[thread].y - own.y;
    for (var e = thread * EACH; e < min((thread + 1u) * EACH, EXPERTS); e++) {
        let count = atomicLoad(&counts[e]);
        for (var done = 0u; done < count; done += TILE_T) {
            sorted[1u + 3u * tile] = e;
            sorted[2u + 3u * tile] = start + done;
            sorted[3u + 3u * tile] = start + min(done + TILE_T, count);
            tile++;
        }
        atomicStore(&counts[e], start);
        start += count;
    }
    workgroupBarrier();
    // The order within an expert is as it comes: each choice has its own place in what follows.
    for (var i = thread; i < n; i += THREADS) {
        sorted[p.list + atomicAdd(&counts[choices[i]], 1u)] = i;
    }
}
