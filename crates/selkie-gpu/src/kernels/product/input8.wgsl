// The one row that products multiply, rounded to 8 bits in groups of 32: eight words of four values each, then the group's scale and
// its sums over either half, scaled. An invocation makes EACH quads, eight neighbours a group. A norm is over the whole row.
#include "kernels/product/input_quads.wgsl"
#include "kernels/reduce.wgsl"
#include "kernels/product/round.wgsl"

var<workgroup> made: array<vec4<u32>, 3u * ROOM>;

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
        let r = rounded_quad(thread, v);
        if i < quads {
            let g = i / 8u;
            let within = i % 8u;
            made[3u * g + within / 4u][within % 4u] = r.quad;
            if within == 0u {
                made[3u * g + 2u].x = bitcast<u32>(r.scale);
                made[3u * g + 2u].y = bitcast<u32>(r.sum);
            } else if within == 4u {
                made[3u * g + 2u].z = bitcast<u32>(r.sum);
            }
        }
    }
    workgroupBarrier();
}
