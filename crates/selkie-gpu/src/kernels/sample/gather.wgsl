// Gathers the tokens of the bins that decide: where top-k and top-p cut, and where the uniform number may fall.
#include "kernels/sample/choice.wgsl"
#include "kernels/sample/sums.wgsl"
#include "kernels/sample/uniform.wgsl"

struct Params {
    width: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_RANKS) var<storage, read> ranks: array<u32>; // [width]
@group(0) @binding(B_TALLY) var<storage, read_write> tally: array<atomic<u32>>;
@group(0) @binding(B_LIST) var<storage, read_write> list: array<vec2<u32>>; // [width] at most: rank, id

fn tallied(i: u32) -> u32 {
    return atomicLoad(&tally[i]);
}
#include "kernels/sample/search.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let left_over = kept(thread);
    let cut = left_over.cut;
    // What is kept has at least and at most this mass.
    var least = left_over.all;
    var most = left_over.all;
    if cut.bin != NONE {
        least = cut.before;
        most = plus(cut.before, cut.inside);
    }
    let number = uniform_number();
    let start = find(thread, share(least, number)).bin;
    let end = find(thread, share(most, number)).bin;
    for (var i = id.x * CHUNK + thread; i < min((id.x + 1u) * CHUNK, p.width); i += THREADS) {
        let rank = ranks[i];
        let bin = rank >> RANK_BITS;
        if rank != NONE && (bin == cut.bin || (bin >= start && bin <= end)) {
            list[atomicAdd(&tally[0], 1u)] = vec2<u32>(rank, i);
        }
    }
}
