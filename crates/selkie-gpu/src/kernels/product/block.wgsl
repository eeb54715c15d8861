// Products of rows with rows: out[t, r] = weights[r] . x[t]. A workgroup makes a tile of 64 x 64 sums from tiles of 64 x 32 of
// both, unpacked into workgroup memory; an invocation sums 4 x 4.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32,
    first: u32, // the chunk's first row
    rows: u32, // its rows
    row_words: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
    other_offset: u32,
    other_stride: u32,
    then_scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, width]
#if B_BIAS
@group(0) @binding(B_BIAS) var<storage, read> bias: array<f32>; // [rows of the matrix]
#endif
#if B_OTHER
@group(0) @binding(B_OTHER) var<storage, read> other: array<f32>; // [rows, width]: the residual, or gates
#endif
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, cols]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "kernels/functions.wgsl"
#include "quant/FORMAT.wgsl"

const TILE = 64u;
// Quads of 4 columns, [8, TILE]: neighbours read neighbours.
var<workgroup> tile_x: array<vec4<f32>, 512>;
var<workgroup> tile_w: array<vec4<f32>, 512>;

fn load_x(first: u32, g: u32, thread: u32) {
    for (var i = thread; i < 512u; i += 256u) {
        let t = first + i / 8u;
        let col = g * 32u + i % 8u * 4u;
        var v = vec4<f32>();
        if t < step.ROWS {
            let at = p.x_offset + t * p.x_stride + col;
            if col + 3u < p.cols {
                v = vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
            } else {
                for (var j = 0u; col + j < p.cols; j++) {
                    v[j] = x[at + j];
                }
            }
        }
        tile_x[i % 8u * TILE + i / 8u] = v;
    }
}

fn load_w(first: u32, g: u32, thread: u32) {
#if FORMAT_FLOAT
    for (var i = thread; i < 512u; i += 256u) {
        let r = first + i / 8u;
        var v = vec4<f32>();
        if r < p.rows && g * 32u + i % 8u * 4u < p.cols {
            v = quad(r * p.row_words, g * 8u + i % 8u);
        }
        tile_w[i % 8u * TILE + i / 8u] = v;
    }
#else
    // A thread unpacks a group: a quarter of them work.
    if thread < TILE {
        let r = first + thread;
        if r < p.rows {
            let w = group(r * p.row_words, p.groups, g);
            for (var i = 0u; i < 4u; i++) {
                tile_w[i * TILE + thread] = w.d.x * vec4<f32>(unpack4xI8(w.lo[i])) + w.m.x;
                tile_w[(i + 4u) * TILE + thread] = w.d.y * vec4<f32>(unpack4xI8(w.hi[i])) + w.m.y;
            }
        } else {
            for (var i = 0u; i < 8u; i++) {
                tile_w[i * TILE + thread] = vec4<f32>();
            }
        }
    }
#endif
}

fn with_bias(row: u32, sum: f32) -> f32 {
#if B_BIAS
    return sum + bias[p.first + row];
#else
    return sum;
#endif
}

fn store(t: u32, row: u32, sum: f32) {
    let at = p.out_offset + t * p.out_stride + p.first + row;
#if THEN == add && OVER
    out[at] = out[at] + p.then_scale * with_bias(row, sum);
#elif THEN == add
    out[at] = other[p.other_offset + t * p.other_stride + p.first + row] + p.then_scale * with_bias(row, sum);
#elif THEN == gated
    out[at] = THEN_FN(other[p.other_offset + t * p.other_stride + p.first + row], 0.0) * with_bias(row, sum);
#else
    out[at] = with_bias(row, sum);
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_row = id.x * TILE;
    let first_t = id.y * TILE;
    // Sixteen threads side by side take rows r, r + 16, ...; GLU keeps neighbours in one thread.
    let tx = thread % 16u;
    let ty = thread / 16u;
    var sums: array<vec4<f32>, 4>;
    for (var g = 0u; g < p.groups; g++) {
        load_x(first_t, g, thread);
        load_w(first_row, g, thread);
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let at = k * TILE;
#if THEN == glu
            let w0 = tile_w[at + 2u * tx];
            let w1 = tile_w[at + 2u * tx + 1u];
            let w2 = tile_w[at + 2u * tx + 32u];
            let w3 = tile_w[at + 2u * tx + 33u];
#else
            let w0 = tile_w[at + tx];
            let w1 = tile_w[at + tx + 16u];
            let w2 = tile_w[at + tx + 32u];
            let w3 = tile_w[at + tx + 48u];
#endif
            for (var i = 0u; i < 4u; i++) {
                let v = tile_x[at + ty + 16u * i];
                sums[i] += vec4<f32>(dot(v, w0), dot(v, w1), dot(v, w2), dot(v, w3));
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let t = first_t + ty + 16u * i;
        if t >= step.ROWS {
            continue;
        }
#if THEN == glu
        for (var j = 0u; j < 2u; j++) {
            let row = first_row + 2u * tx + 32u * j;
            if row < p.rows {
                let gate = with_bias(row, sums[i][2u * j]);
                let up = with_bias(row + 1u, sums[i][2u * j + 1u]);
                out[p.out_offset + t * p.out_stride + (p.first + row) / 2u] = THEN_FN(gate, 0.0) * up;
            }
        }
#else
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + tx + 16u * j;
            if row < p.rows {
                store(t, row, sums[i][j]);
            }
        }
#endif
    }
}
