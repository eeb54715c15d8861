// Products of rows with rows in half precision, by a subgroup together: out[t, r] = weights[r] . x[t]. A workgroup of eight subgroups
// makes 128 x 128 sums from tiles of 128 x 64 of both; a subgroup has 64 rows of x and 32 of the matrix, 4 x 2 tiles of 16 x 16, summed
// in f32.
enable f16;
enable wgpu_cooperative_matrix;
#include "kernels/common.wgsl"

struct Params {
    groups: u32,
    first: u32, // the chunk's first row
    rows: u32, // its rows, up to the last that is multiplied
    begin: u32, // the first that is
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
@group(0) @binding(B_X) var<storage, read> x: array<vec4<f32>>; // [rows, cols / 4]
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [rows, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "kernels/functions.wgsl"
#include "quant/FORMAT.wgsl"

// Sixteen quads of 4 columns a row, and two of padding against bank conflicts.
const PITCH = 18u;
var<workgroup> tile_x: array<vec4<f16>, 2304>; // [128, PITCH]
var<workgroup> tile_w: array<vec4<f16>, 2304>; // [128, PITCH]
var<workgroup> stage: array<f32, 2048>; // a tile of sums for each subgroup

fn half_quad(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
}

fn store_w(at: u32, row: u32, g: u32) {
    if row >= p.rows || g >= p.groups {
        for (var i = 0u; i < 8u; i++) {
            tile_w[at + i] = vec4<f16>();
        }
        return;
    }
#if FORMAT_FLOAT
    for (var i = 0u; i < 4u; i++) {
        let w = octet(row * p.row_words, g * 4u + i);
        tile_w[at + 2u * i] = half_quad(w.lo);
        tile_w[at + 2u * i + 1u] = half_quad(w.hi);
    }
#else
    let w = group(row * p.row_words, p.groups, g);
    for (var i = 0u; i < 4u; i++) {
        tile_w[at + i] = vec4<f16>(w.d.x * vec4<f32>(unpack4xI8(w.lo[i])) + w.m.x);
        tile_w[at + 4u + i] = vec4<f16>(w.d.y * vec4<f32>(unpack4xI8(w.hi[i])) + w.m.y);
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
    out[at] = THEN_FN(p.then_scale * other[p.other_offset + t * p.other_stride + p.first + row], 0.0) * with_bias(row, sum);
#else
    out[at] = with_bias(row, sum);
#endif
}

// Writes the staged tile of a subgroup: a lane has half a row.
fn write(subgroup: u32, lane: u32, t0: u32, row0: u32) {
    let t = t0 + lane / 2u;
    let within = lane % 2u * 8u;
    if t >= step.ROWS {
        return;
    }
    let at = subgroup * 256u + lane / 2u * 16u + within;
#if THEN == glu
    for (var j = 0u; j < 8u; j += 2u) {
        let row = row0 + within + j;
        if row < p.rows {
            let to = p.out_offset + t * p.out_stride + (p.first + row) / 2u;
            out[to] = THEN_FN(p.then_scale * with_bias(row, stage[at + j]), 0.0) * with_bias(row + 1u, stage[at + j + 1u]);
        }
    }
#else
    for (var j = 0u; j < 8u; j++) {
        if row0 + within + j < p.rows {
            store(t, row0 + within + j, stage[at + j]);
        }
    }
#endif
}

alias Sums = coop_mat16x16<f32, C>;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    // Row tiles of x are neighbours: they share the matrix's rows in the cache.
    let first_t = id.x * 128u;
    let first_row = p.begin + id.y * 128u;
    let subgroup = thread / 32u;
    let lane = thread % 32u;
    let own_t = subgroup / 4u * 64u;
    let own_row = subgroup % 4u * 32u;
    var s00 = Sums();
    var s01 = Sums();
    var s10 = Sums();
    var s11 = Sums();
    var s20 = Sums();
    var s21 = Sums();
    var s30 = Sums();
    var s31 = Sums();
    for (var g = 0u; g < p.groups; g += 2u) {
        for (var i = 0u; i < 8u; i++) {
            let at = i * 256u + thread;
            let t = first_t + at / 16u;
            var v = vec4<f32>();
            if t < step.ROWS && g * 8u + at % 16u < p.groups * 8u {
                v = x[(p.x_offset + t * p.x_stride) / 4u + g * 8u + at % 16u];
            }
            tile_x[at / 16u * PITCH + at % 16u] = half_quad(v);
        }
        store_w(thread / 2u * PITCH + thread % 2u * 8u, first_row + thread / 2u, g + thread % 2u);
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 4u) {
            let b0 = coopLoad<Right>(&tile_w[own_row * PITCH + k], PITCH);
            let b1 = coopLoad<Right>(&tile_w[(own_row + 16u) * PITCH + k], PITCH);
            let a0 = coopLoadT<Left>(&tile_x[own_t * PITCH + k], PITCH);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            let a1 = coopLoadT<Left>(&tile_x[(own_t + 16u) * PITCH + k], PITCH);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
            let a2 = coopLoadT<Left>(&tile_x[(own_t + 32u) * PITCH + k], PITCH);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s21 = coopMultiplyAdd(a2, b1, s21);
            let a3 = coopLoadT<Left>(&tile_x[(own_t + 48u) * PITCH + k], PITCH);
            s30 = coopMultiplyAdd(a3, b0, s30);
            s31 = coopMultiplyAdd(a3, b1, s31);
        }
        workgroupBarrier();
    }
    let to = subgroup * 256u;
    let t0 = first_t + own_t;
    let row0 = first_row + own_row;
    coopStoreT(s00, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0, row0);
    workgroupBarrier();
    coopStoreT(s01, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0, row0 + 16u);
    workgroupBarrier();
    coopStoreT(s10, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 16u, row0);
    workgroupBarrier();
    coopStoreT(s11, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 16u, row0 + 16u);
    workgroupBarrier();
    coopStoreT(s20, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 32u, row0);
    workgroupBarrier();
    coopStoreT(s21, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 32u, row0 + 16u);
    workgroupBarrier();
    coopStoreT(s30, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 48u, row0);
    workgroupBarrier();
    coopStoreT(s31, &stage[to], 16u);
    workgroupBarrier();
    write(subgroup, lane, t0 + 48u, row0 + 16u);
}
