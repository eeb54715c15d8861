// The one row that products multiply, rounded to 8 bits in groups of 32: eight words of four values each, then the group's scale and
// its sums over either half, scaled. An invocation makes EACH quads, eight neighbours a group. A norm is over the whole row.
#include "kernels/functions.wgsl"
#include "kernels/reduce.wgsl"

var<workgroup> made: array<vec4<u32>, 3u * ROOM>;
#if !SUBGROUP
var<workgroup> neighbours: array<vec2<f32>, THREADS>;
#endif

#if BEFORE
fn before_each(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        BEFORE_FN(v.x, p.before_c),
        BEFORE_FN(v.y, p.before_c),
        BEFORE_FN(v.z, p.before_c),
        BEFORE_FN(v.w, p.before_c),
    );
}
#endif
#if AFTER
fn after_each(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(AFTER_FN(v.x, p.after_c), AFTER_FN(v.y, p.after_c), AFTER_FN(v.z, p.after_c), AFTER_FN(v.w, p.after_c));
}
#endif

fn gated_quad(i: u32) -> vec4<f32> {
    let v = x[p.x_offset / 4u + i];
#if BEFORE == of
    return before_each(v);
#elif BEFORE == by
    return before_each(before[p.before_offset / 4u + i]) * v;
#else
    return v;
#endif
}

fn finish_quad(i: u32, v: vec4<f32>, factor: f32) -> vec4<f32> {
    var y = v * factor;
#if NORM_WEIGHT
    y *= norm_weight[i];
#endif
#if AFTER == of
    y = after_each(y);
#elif AFTER == by
    y *= after_each(after[p.after_offset / 4u + i]);
#endif
    return y;
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
fn sum_of_four(thread: u32, value: i32) -> f32 {
#if SUBGROUP
    let sum = value + subgroupShuffleXor(value, 1u);
    return f32(sum + subgroupShuffleXor(sum, 2u));
#else
    workgroupBarrier();
    neighbours[thread].y = f32(value);
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
            v = gated_quad(i);
        }
        values[e] = v;
    }
    var factor = p.scale;
#if NORM
    var square = 0.0;
    for (var e = 0u; e < EACH; e++) {
        square += dot(values[e], values[e]);
    }
    factor *= inverseSqrt(sum_of_all(thread, square) / f32(p.cols) + p.eps);
#endif
    for (var e = 0u; e < EACH; e++) {
        let i = e * THREADS + thread;
        var v = vec4<f32>();
        if i < quads {
            v = finish_quad(i, values[e], factor);
        }
        let most = max_of_eight(thread, max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))));
        let scale = most / 127.0;
        let q = vec4<i32>(round(v * select(0.0, 127.0 / max(most, 1e-30), most > 1e-30)));
        let sum = sum_of_four(thread, q.x + q.y + q.z + q.w);
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
