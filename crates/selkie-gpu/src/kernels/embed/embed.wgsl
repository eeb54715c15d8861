// out[r] = scale * table[ids[r]], from the table's own blocks. A chunk of the table gives the rows that are in it.
#include "kernels/common.wgsl"

struct Params {
    width: u32,
    row_words: u32,
    first: u32, // the chunk's first row
    rows: u32, // its rows
    out_offset: u32,
    out_stride: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_IDS) var<storage, read> ids: array<u32>; // [rows]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, width]
#include "quant/FORMAT.wgsl"

// A thread for 32 values.
@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let groups = (p.width + 31u) / 32u;
    let per_row = (groups + 31u) / 32u;
    let which = group_index(id, n);
    let row = which / per_row;
    let g = which % per_row * 32u + lane;
    if row >= step.rows || g >= groups {
        return;
    }
    let token = ids[step.input + row];
    if token < p.first || token >= p.first + p.rows {
        return;
    }
    let base = (token - p.first) * p.row_words;
    let to = p.out_offset + row * p.out_stride + g * 32u;
#if FORMAT_FLOAT
    for (var i = 0u; i < 8u && g * 32u + 4u * i < p.width; i++) {
        let v = p.scale * quad(base, g * 8u + i);
        let left = p.width - g * 32u - 4u * i;
        for (var j = 0u; j < min(left, 4u); j++) {
            out[to + 4u * i + j] = v[j];
        }
    }
#else
    let w = group(base, groups, g);
    for (var i = 0u; i < 4u; i++) {
        let lo = w.d.x * vec4<f32>(unpack4xI8(w.lo[i])) + w.m.x;
        let hi = w.d.y * vec4<f32>(unpack4xI8(w.hi[i])) + w.m.y;
        for (var j = 0u; j < 4u; j++) {
            out[to + 4u * i + j] = p.scale * lo[j];
            out[to + 16u + 4u * i + j] = p.scale * hi[j];
        }
    }
#endif
}
