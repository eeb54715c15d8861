// The one row that products multiply, rounded to 8 bits in groups of 32: eight words of four values each, then the group's scale and
// its sums over either half, scaled. An invocation makes EACH quads, eight neighbours a group.
#define ONE_ROW
#include "kernels/input.wgsl"

var<workgroup> made: array<vec4<u32>, 3u * ROOM>;
#if !SUBGROUP
var<workgroup> neighbours: array<vec2<f32>, THREADS>;
#endif

// The sum of a value over the workgroup, the same for all.
fn sum_of_all(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    let own = subgroupAdd(value);
    workgroupBarrier();
    if thread % SUBGROUP == 0u {
        partial[thread / SUBGROUP] = own;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < THREADS / SUBGROUP; i++) {
        sum += partial[i];
    }
    return sum;
#else
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    return partial[0];
#endif
}

// The largest of eight neighbours.
fn max_of_eight(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    var most = max(value, subgroupShuffleXor(value, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    return max(most, subgroupShuffleXor(most, 4u));
#else
    workgroupBarrier();
    neighbours[thread].x = value;
    workgroupBarrier();
    var most = 0.0;
    for (var i = 0u; i < 8u; i++) {
        most = max(most, neighbours[thread / 8u * 8u + i].x);
    }
    return most;
#endif
}

// The sum of four neighbours.
fn sum_of_four(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    let sum = value + subgroupShuffleXor(value, 1u);
    return sum + subgroupShuffleXor(sum, 2u);
#else
    workgroupBarrier();
    neighbours[thread].y = value;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 4u; i++) {
        sum += neighbours[thread / 4u * 4u + i].y;
    }
    return sum;
#endif
}

fn make_input(thread: u32) {
    // Columns come in groups of 32 in every block format.
    let quads = p.groups * 8u;
    var values: array<vec4<f32>, EACH>;
    for (var e = 0u; e < EACH; e++) {
        let i = e * THREADS + thread;
        var v = vec4<f32>();
        if i < quads {
            v = vec4<f32>(gated(0u, 4u * i), gated(0u, 4u * i + 1u), gated(0u, 4u * i + 2u), gated(0u, 4u * i + 3u));
        }
        values[e] = v;
    }
#if NORM
    var square = 0.0;
    for (var e = 0u; e < EACH; e++) {
        square += dot(values[e], values[e]);
    }
    let factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(p.cols) + p.eps);
#else
    let factor = 1.0;
#endif
    for (var e = 0u; e < EACH; e++) {
        let i = e * THREADS + thread;
        var v = vec4<f32>();
        if i < quads {
            for (var j = 0u; j < 4u; j++) {
                v[j] = finish(0u, 4u * i + j, values[e][j], factor);
            }
        }
        let most = max_of_eight(thread, max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))));
        let scale = most / 127.0;
        let q = vec4<i32>(round(v * select(0.0, 127.0 / max(most, 1e-30), most > 1e-30)));
        let sum = sum_of_four(thread, f32(q.x + q.y + q.z + q.w));
        if i < quads {
            let g = i / 8u;
            let within = i % 8u;
            made[3u * g + within / 4u][within % 4u] = pack4xI8(q);
            if within == 0u {
                made[3u * g + 2u].x = bitcast<u32>(scale);
                made[3u * g + 2u].y = bitcast<u32>(scale * sum);
            } else if within == 4u {
                made[3u * g + 2u].z = bitcast<u32>(scale * sum);
            }
        }
    }
    workgroupBarrier();
}
