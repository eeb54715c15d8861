// Which experts a row uses, and by how much, as `route` of the reference has it. The including kernel declares THREADS and
// `partial` [THREADS] in workgroup memory, has p.route_scale, and defines
//   score(e): the router's product,
//   choice_bias(e): what is added for choosing, where there is CHOICE_BIAS.
#include "kernels/functions.wgsl"
#include "kernels/reduce.wgsl"
const LOWEST = -3.4028234e38;
const SUM_EPS = 1e-20; // keeps a sum from being 0 where it divides
const EXPERT_QUADS = (EXPERTS + 3u) / 4u;
var<workgroup> keys: array<vec4<u32>, EXPERT_QUADS>; // the larger the better; 0 is not to be chosen
var<workgroup> chosen: array<u32, USED>;
var<private> largest: f32;
var<private> total: f32;

// A number from 1 on, in the order of floats; both zeros are one.
fn order(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let plus = select(bits, 0u, bits == 0x80000000u);
    return max(select(plus | 0x80000000u, ~plus, (plus >> 31u) != 0u), 1u);
}

// What the softmax over all experts divides by.
fn softmax_sums(thread: u32) {
    var own = LOWEST;
    for (var e = thread; e < EXPERTS; e += THREADS) {
        own = max(own, score(e));
    }
    largest = max_of_all(thread, own);
    workgroupBarrier();
    var sum = 0.0;
    for (var e = thread; e < EXPERTS; e += THREADS) {
        sum += exp(score(e) - largest);
    }
    total = sum_of_all(thread, sum);
}

fn value(e: u32) -> f32 {
#if SCORE == softmax
    return exp(score(e) - largest) / total;
#elif SCORE == sigmoid
    return sigmoid(score(e));
#else
    return score(e);
#endif
}

// What experts are chosen by. Where values are in the order of the products, the products tell more of them apart.
fn choice(e: u32) -> f32 {
#if CHOICE_BIAS
    return value(e) + choice_bias(e);
#elif BY_VALUES
    return value(e);
#else
    return score(e);
#endif
}

#if EXPERT_GROUPS
const GROUP_SIZE = EXPERTS / EXPERT_GROUPS;
var<workgroup> group_keys: array<u32, EXPERT_GROUPS>;

fn group_score(g: u32) -> f32 {
    var best = LOWEST;
    var second = LOWEST;
    for (var e = g * GROUP_SIZE; e < (g + 1u) * GROUP_SIZE; e++) {
        let v = choice(e);
        second = max(second, min(best, v));
        best = max(best, v);
    }
#if BEST_TWO
    return best + select(0.0, second, GROUP_SIZE > 1u);
#else
    return best;
#endif
}

// Closes the experts of all but the best groups.
fn close_groups(thread: u32) {
    for (var g = thread; g < EXPERT_GROUPS; g += THREADS) {
        group_keys[g] = order(group_score(g));
    }
    workgroupBarrier();
    for (var q = thread; q < EXPERT_QUADS; q += THREADS) {
        var k = keys[q];
        for (var j = 0u; j < 4u && 4u * q + j < EXPERTS; j++) {
            let g = (4u * q + j) / GROUP_SIZE;
            var better = 0u;
            for (var h = 0u; h < EXPERT_GROUPS; h++) {
                better += select(0u, 1u, group_keys[h] > group_keys[g] - select(0u, 1u, h < g));
            }
            k[j] = select(k[j], 0u, better >= GROUPS_USED);
        }
        keys[q] = k;
    }
    workgroupBarrier();
}
#endif

// Fills `chosen`, in ascending order.
fn choose(thread: u32) {
#if SCORE == softmax && (CHOICE_BIAS || BY_VALUES)
    softmax_sums(thread);
#endif
    for (var q = thread; q < EXPERT_QUADS; q += THREADS) {
        var k = vec4<u32>();
        for (var j = 0u; j < 4u && 4u * q + j < EXPERTS; j++) {
            k[j] = order(choice(4u * q + j));
        }
        keys[q] = k;
    }
    if thread < USED {
        chosen[thread] = thread;
    }
    workgroupBarrier();
#if EXPERT_GROUPS
    close_groups(thread);
#endif
    // An expert's place is the number of better ones: of those before it, equal ones too.
    for (var e = thread; e < EXPERTS; e += THREADS) {
        let key = keys[e / 4u][e % 4u];
        var better = vec4<u32>();
        for (var q = 0u; q < EXPERT_QUADS; q++) {
            let before = vec4(4u * q) + vec4(0u, 1u, 2u, 3u) < vec4(e);
            let least = vec4(key) - select(vec4(0u), vec4(1u), before);
            better += select(vec4(0u), vec4(1u), keys[q] > least);
        }
        let place = better.x + better.y + better.z + better.w;
        if key != 0u && place < USED {
            chosen[place] = e;
        }
    }
    workgroupBarrier();
    var at = 0u;
    var mine = 0u;
    if thread < USED {
        mine = chosen[thread];
        for (var k = 0u; k < USED; k++) {
            at += select(0u, 1u, chosen[k] < mine);
        }
    }
    workgroupBarrier();
    if thread < USED {
        chosen[at] = mine;
    }
    workgroupBarrier();
}

// The weight of the expert chosen[thread], after `choose`; for all invocations together.
fn weigh(thread: u32) -> f32 {
#if SCORE == softmax && !(CHOICE_BIAS || BY_VALUES)
    softmax_sums(thread);
#endif
    let own = chosen[min(thread, USED - 1u)];
    var sum = 0.0;
#if SCORE == softmax_of_chosen
    var top = LOWEST;
    for (var k = 0u; k < USED; k++) {
        top = max(top, score(chosen[k]));
    }
    for (var k = 0u; k < USED; k++) {
        sum += exp(score(chosen[k]) - top);
    }
    return p.route_scale * exp(score(own) - top) / sum;
#elif RENORMALISE
    for (var k = 0u; k < USED; k++) {
        sum += value(chosen[k]);
    }
    return p.route_scale / (sum + SUM_EPS) * value(own);
#else
    return p.route_scale * value(own);
#endif
}
