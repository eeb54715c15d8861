// Chooses among the gathered tokens: where exactly top-k and top-p cut, and then the token at which the masses of the
// likeliest ones reach the uniform number's share of what is left. Equally likely ones come in the order of their ids.
#include "kernels/sample/choice.wgsl"
#include "kernels/sample/sums.wgsl"
#include "kernels/sample/uniform.wgsl"

struct Params {
    ids: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_TALLY) var<storage, read> tally: array<u32>;
@group(0) @binding(B_LIST) var<storage, read> list: array<vec2<u32>>; // rank, id
@group(0) @binding(B_INPUTS) var<storage, read_write> inputs: array<u32>;
#include "kernels/sample/deliver.wgsl"

fn tallied(i: u32) -> u32 {
    return tally[i];
}
#include "kernels/sample/search.wgsl"

// Bits of an id at most, and those by which a round narrows.
const ID_BITS = 27u;
const ROUND_BITS = 9u;
var<workgroup> bins: array<atomic<u32>, 3u * BINS>;
var<workgroup> few: array<vec2<u32>, THREADS>;
var<workgroup> few_len: atomic<u32>;
struct Picked {
    id: u32,
    through: Sum, // of the bin's tokens up to it
}
var<workgroup> picked: Picked;

// Tokens by rank, then by id: those whose rank is `first.x` in all but some last bits, and whose id is `first.y` so.
struct Range {
    first: vec2<u32>,
    bits: vec2<u32>,
}

fn is_in(token: vec2<u32>, range: Range) -> bool {
    return all((token - range.first) >> range.bits == vec2<u32>(0u, 0u));
}

// The token of bin `bin`, which holds `inside`, at which `aim` is reached.
fn pick(thread: u32, bin: u32, inside: Sum, wanted: Sum) -> Picked {
    let len = tallied(0u);
    var range = Range(vec2<u32>(bin << RANK_BITS, 0u), vec2<u32>(RANK_BITS, ID_BITS));
    var aim = wanted;
    var passed = Sum(0u, 0u, 0u);
    var count = inside.count;
    // As many rounds as there are bits; mostly there are few tokens at once.
    for (var round = 0u; round < 6u && count > THREADS; round++) {
        let axis = select(1u, 0u, range.bits.x > 0u);
        let by = min(range.bits[axis], ROUND_BITS);
        let left = range.bits[axis] - by;
        for (var i = thread; i < 3u * BINS; i += THREADS) {
            atomicStore(&bins[i], 0u);
        }
        workgroupBarrier();
        for (var i = thread; i < len; i += THREADS) {
            let token = list[i];
            if is_in(token, range) {
                let at = 3u * ((token[axis] - range.first[axis]) >> left);
                let one = mass(token.x);
                atomicAdd(&bins[at], 1u);
                let old = atomicAdd(&bins[at + 1u], one.low);
                atomicAdd(&bins[at + 2u], one.high + select(0u, 1u, old + one.low < old));
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < 3u; i++) {
            let at = 3u * (3u * thread + i);
            own[i] = Sum(atomicLoad(&bins[at]), atomicLoad(&bins[at + 1u]), atomicLoad(&bins[at + 2u]));
        }
        scan(thread);
        let next = find(thread, aim);
        range.first[axis] += next.bin << left;
        range.bits[axis] = left;
        aim = minus(aim, next.before);
        passed = plus(passed, next.before);
        count = next.inside.count;
    }
    // Each thread has a token, and sums up those before it.
    if thread == 0u {
        atomicStore(&few_len, 0u);
        picked = Picked(0u, inside);
    }
    workgroupBarrier();
    for (var i = thread; i < len; i += THREADS) {
        let token = list[i];
        if is_in(token, range) {
            few[min(atomicAdd(&few_len, 1u), THREADS - 1u)] = token;
        }
    }
    workgroupBarrier();
    let n = min(atomicLoad(&few_len), THREADS);
    if thread < n {
        let token = few[thread];
        var sum = Sum(0u, 0u, 0u);
        for (var i = 0u; i < n; i++) {
            let other = few[i];
            if other.x < token.x || (other.x == token.x && other.y < token.y) {
                sum = plus(sum, mass(other.x));
            }
        }
        let through = plus(sum, mass(token.x));
        if !reaches(sum, aim) && reaches(through, aim) {
            picked = Picked(token.y, plus(passed, through));
        }
    }
    return workgroupUniformLoad(&picked);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
    let left_over = kept(thread);
    let cut = left_over.cut;
    let all_own = own;
    let all_before = before;
    var left = left_over.all;
    if cut.bin != NONE {
        let last = pick(thread, cut.bin, cut.inside, minus(limit(), cut.before));
        left = plus(cut.before, last.through);
        own = all_own;
        before = all_before;
    }
    let aim = share(left, uniform_number());
    let at = find(thread, aim);
    var id = 0u;
    if at.bin != NONE {
        id = pick(thread, at.bin, at.inside, minus(aim, at.before)).id;
    }
    if thread == 0u {
        deliver(id);
    }
}
