// A product for each head, of blocks of rows: out[t, h, r] = weights[h, r] . x[t, h]. A workgroup makes a tile of 64 x 64 sums of
// one head from tiles of 64 x 32 of both, unpacked into workgroup memory; an invocation sums 4 x 4.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32, // of 32 columns
    first_head: u32, // of the chunk
    head_out: u32, // rows of a head
    row_words: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_heads, head_out]
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [rows, n_heads, cols]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [n_heads, head_out, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"

const TILE = 64u;
// Quads of 4 columns, [8, TILE]: neighbours read neighbours.
var<workgroup> tile_x: array<vec4<f32>, 512>;
var<workgroup> tile_w: array<vec4<f32>, 512>;

fn load_x(first: u32, head: u32, g: u32, thread: u32) {
    for (var i = thread; i < 512u; i += 256u) {
        let t = first + i / 8u;
        let col = g * 32u + i % 8u * 4u;
        var v = vec4<f32>();
        if t < step.rows {
            let at = p.x_offset + t * p.x_stride + head * p.cols + col;
            for (var j = 0u; j < 4u; j++) {
                if col + j < p.cols {
                    v[j] = x[at + j];
                }
            }
        }
        tile_x[i % 8u * TILE + i / 8u] = v;
    }
}

// `base` is the head's first row of the chunk.
fn load_w(first: u32, base: u32, g: u32, thread: u32) {
#if FORMAT_FLOAT
    for (var i = thread; i < 512u; i += 256u) {
        let r = first + i / 8u;
        var v = vec4<f32>();
        if r < p.head_out && g * 32u + i % 8u * 4u < p.cols {
            v = quad((base + r) * p.row_words, g * 8u + i % 8u);
        }
        tile_w[i % 8u * TILE + i / 8u] = v;
    }
#else
    // A thread unpacks a group: a quarter of them work.
    if thread < TILE {
        for (var i = 0u; i < 8u; i++) {
            tile_w[i * TILE + thread] = vec4<f32>();
        }
        if first + thread < p.head_out {
            let w = group((base + first + thread) * p.row_words, p.groups, g);
            for (var i = 0u; i < 4u; i++) {
                tile_w[i * TILE + thread] = w.d.x * vec4<f32>(unpack4xI8(w.lo[i])) + w.m.x;
                tile_w[(i + 4u) * TILE + thread] = w.d.y * vec4<f32>(unpack4xI8(w.hi[i])) + w.m.y;
            }
        }
    }
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_row = id.x * TILE;
    let first_t = id.y * TILE;
    let head = p.first_head + id.z;
    let tx = thread % 16u;
    let ty = thread / 16u;
    var sums: array<vec4<f32>, 4>;
    for (var g = 0u; g < p.groups; g++) {
        load_x(first_t, head, g, thread);
        load_w(first_row, id.z * p.head_out, g, thread);
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let at = k * TILE + tx;
            let w0 = tile_w[at];
            let w1 = tile_w[at + 16u];
            let w2 = tile_w[at + 32u];
            let w3 = tile_w[at + 48u];
            for (var i = 0u; i < 4u; i++) {
                let v = tile_x[k * TILE + ty + 16u * i];
                sums[i] += vec4<f32>(dot(v, w0), dot(v, w1), dot(v, w2), dot(v, w3));
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let t = first_t + ty + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + tx + 16u * j;
            if t < step.rows && row < p.head_out {
                out[p.out_offset + t * p.out_stride + head * p.head_out + row] = sums[i][j];
            }
        }
    }
}
