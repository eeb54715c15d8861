// The one row that products multiply, made in workgroup memory: nine quads of room for every eight, so that neighbours who read
// a group each meet other banks.
#if QUADS
#include "kernels/product/input_quads.wgsl"
#else
#define ONE_ROW
#include "kernels/input.wgsl"
#endif
#include "kernels/reduce.wgsl"

var<workgroup> made: array<vec4<f32>, ROOM * 9u>;

fn place_of(i: u32) -> u32 {
    return i / 8u * 9u + i % 8u;
}

fn quad_of_x(i: u32) -> vec4<f32> {
    return made[place_of(i + SHIFT)];
}

#if QUADS
fn make_input(thread: u32) {
    // An invocation makes EACH quads.
    let quads = p.groups * 8u;
    var values: array<vec4<f32>, EACH>;
    for (var e = 0u; e < EACH; e++) {
        let i = e * THREADS + thread;
        var v = vec4<f32>();
        if i < p.cols / 4u {
            v = gated_quad(i);
        }
        values[e] = v;
    }
    var factor = 1.0;
#if NORM
    var square = 0.0;
    for (var e = 0u; e < EACH; e++) {
        square += dot(values[e], values[e]);
    }
    factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(p.cols) + p.eps);
#endif
    for (var e = 0u; e < EACH; e++) {
        let i = e * THREADS + thread;
        if i < p.cols / 4u {
            made[place_of(i)] = finish_quad(i, values[e], factor);
        } else if i < quads {
            made[place_of(i)] = vec4<f32>();
        }
    }
    workgroupBarrier();
}
#else
fn gated_quad(i: u32) -> vec4<f32> {
    var v = vec4<f32>();
    for (var j = 0u; j < 4u; j++) {
        if 4u * i + j < p.cols {
            v[j] = gated(0u, 4u * i + j);
        }
    }
    return v;
}

fn finish_quad(i: u32, v: vec4<f32>, factor: f32) -> vec4<f32> {
    var y = vec4<f32>();
    for (var j = 0u; j < 4u; j++) {
        if 4u * i + j < p.cols {
            y[j] = finish(0u, 4u * i + j, v[j], factor);
        }
    }
    return y;
}

fn make_input(thread: u32) {
    let quads = p.groups * 8u;
    for (var i = thread; i < quads; i += THREADS) {
        made[place_of(i)] = gated_quad(i);
    }
#if NORM
    if p.group == p.cols {
        var square = 0.0;
        for (var i = thread; i < quads; i += THREADS) {
            let v = made[place_of(i)];
            square += dot(v, v);
        }
        let factor = 1.0 / sqrt(sum_of_all(thread, square) / f32(p.cols) + p.eps);
        for (var i = thread; i < quads; i += THREADS) {
            made[place_of(i)] = finish_quad(i, made[place_of(i)], factor);
        }
    } else {
        // Groups within the row, a thread for the factor of each.
        workgroupBarrier();
        for (var first = 0u; first < p.cols / p.group; first += THREADS) {
            let which = first + thread;
            var square = 0.0;
            if which < p.cols / p.group {
                for (var i = which * p.group; i < (which + 1u) * p.group; i++) {
                    let v = made[place_of(i / 4u)][i % 4u];
                    square += v * v;
                }
            }
            partial[thread] = 1.0 / sqrt(square / f32(p.group) + p.eps);
            workgroupBarrier();
            let source = first * p.group;
            let to = min(p.cols, (first + THREADS) * p.group);
            for (var i = source + thread; i < to; i += THREADS) {
                let at = place_of(i / 4u);
                made[at][i % 4u] = finish(0u, i, made[at][i % 4u], partial[i / p.group - first]);
            }
            workgroupBarrier();
        }
    }
#else
    for (var i = thread; i < quads; i += THREADS) {
        made[place_of(i)] = finish_quad(i, made[place_of(i)], 1.0);
    }
#endif
    workgroupBarrier();
}
#endif
