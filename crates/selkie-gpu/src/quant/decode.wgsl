// Decodes whole rows of a matrix to f32: an invocation a group of 32 values, or four values of the float formats.
@group(0) @binding(0) var<storage, read> weights4: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read_write> values: array<f32>;
@group(0) @binding(3) var<uniform> sizes: Sizes;
#if FORMAT_GRIDS
@group(0) @binding(4) var<storage, read> grids: array<u32>;
#endif

#include "quant/FORMAT.wgsl"

// row_words: words from row to row in `weights`.
struct Sizes { rows: u32, cols: u32, row_words: u32 }

fn put(at: u32, end: u32, quad: vec4<f32>) {
    if at < end { values[at] = quad.x; }
    if at + 1u < end { values[at + 1u] = quad.y; }
    if at + 2u < end { values[at + 2u] = quad.z; }
    if at + 3u < end { values[at + 3u] = quad.w; }
}

#if FORMAT_FLOAT
const STEP = 4u;
#else
const STEP = 32u;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) size: vec3<u32>) {
    let steps = (sizes.cols + STEP - 1u) / STEP;
    let at = id.y * size.x * 64u + id.x;
    let r = at / steps;
    if r >= sizes.rows { return; }
    let i = at % steps;
    let row = r * sizes.row_words;
    let end = (r + 1u) * sizes.cols;
    let start = r * sizes.cols + STEP * i;
#if FORMAT_FLOAT
    put(start, end, quad(row, i));
#else
    let unpacked = group(row, steps, i);
    for (var w = 0u; w < 4u; w++) {
        put(start + 4u * w, end, unpacked.d.x * vec4<f32>(unpack4xI8(unpacked.lo[w])) + unpacked.m.x);
        put(start + 16u + 4u * w, end, unpacked.d.y * vec4<f32>(unpack4xI8(unpacked.hi[w])) + unpacked.m.y);
    }
#endif
}
