// As grouped.wgsl, in half precision by a subgroup together: a tile is 64 rows of one expert with 128 rows of its matrix, from tiles
// of 64 columns of both. Each of eight subgroups has 32 x 32 of the sums, 2 x 2 tiles of 16 x 16, in f32.
enable f16;
enable wgpu_cooperative_matrix;
#include "kernels/common.wgsl"
#define HALVES
#include "kernels/mixture/experts.wgsl"

// Sixteen quads of 4 columns a row, and two of padding against bank conflicts.
const PITCH = 18u;
var<workgroup> tile_x: array<vec4<f16>, 1152>; // [64, PITCH]
var<workgroup> tile_w: array<vec4<f16>, 2304>; // [128, PITCH]
var<workgroup> stage: array<f32, 2048>; // a tile of sums for each subgroup
var<workgroup> starts: array<u32, 64>; // of the tile's rows in x

fn half_quad(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
}

fn load_x(g: u32, thread: u32) {
    for (var i = 0u; i < 4u; i++) {
        let t = (i * 256u + thread) / 16u;
        let quad_at = g * 8u + thread % 16u;
        let row = starts[t];
        var v = vec4<f32>();
        if row != NO_ROW && quad_at < p.groups * 8u {
            v = x[row / 4u + quad_at];
        }
        tile_x[t * PITCH + thread % 16u] = half_quad(v);
    }
}

// Group g of a row of the chunk, zeros past `own_end`.
fn load_w(at: u32, row: u32, own_end: u32, g: u32) {
    if row >= own_end || g >= p.groups {
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

// Writes the staged tile of a subgroup, whose first row of x is t0 of the tile and whose first row of the chunk is row0: a lane has
// half a row.
fn write(subgroup: u32, lane: u32, t0: u32, row0: u32, base: u32, own_end: u32) {
    let t = start + t0 + lane / 2u;
    if t >= end {
        return;
    }
    let within = lane % 2u * 8u;
    let staged = subgroup * 256u + lane / 2u * 16u + within;
    let at = sorted[p.list + t] * p.out_stride;
    for (var j = 0u; j < 8u; j += STORE_STEP) {
        let row = row0 + within + j;
        if row < own_end {
            store(at, row - base, stage[staged + j], stage[staged + (j | 1u)]);
        }
    }
}

alias Sums = coop_mat16x16<f32, C>;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let subgroup = thread / 32u;
    let lane = thread % 32u;
    let own_t = subgroup / 4u * 32u;
    let own_row = subgroup % 4u * 32u;
    let to = subgroup * 256u;
    let tiles = sorted[0];
    for (var tile = id.y; tile < tiles; tile += n.y) {
        let e = sorted[1u + 3u * tile];
        expert = e;
        start = sorted[2u + 3u * tile];
        end = sorted[3u + 3u * tile];
        // The expert's rows in the chunk; those before it are past every end.
        let base = e * p.expert_rows - p.first;
        let first = base + id.x * 128u;
        let own_end = u32(clamp(i32(base + p.expert_rows), 0, i32(p.rows)));
        if first >= own_end && first + 127u >= own_end {
            continue;
        }
        if thread < 64u {
            starts[thread] = x_row(thread);
        }
        workgroupBarrier();
        var s00 = Sums();
        var s01 = Sums();
        var s10 = Sums();
        var s11 = Sums();
        for (var g = 0u; g < p.groups; g += 2u) {
            load_x(g, thread);
            load_w(thread / 2u * PITCH + thread % 2u * 8u, first + thread / 2u, own_end, g + thread % 2u);
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
            }
            workgroupBarrier();
        }
        let row0 = first + own_row;
        coopStoreT(s00, &stage[to], 16u);
        workgroupBarrier();
        write(subgroup, lane, own_t, row0, base, own_end);
        workgroupBarrier();
        coopStoreT(s01, &stage[to], 16u);
        workgroupBarrier();
        write(subgroup, lane, own_t, row0 + 16u, base, own_end);
        workgroupBarrier();
        coopStoreT(s10, &stage[to], 16u);
        workgroupBarrier();
        write(subgroup, lane, own_t + 16u, row0, base, own_end);
        workgroupBarrier();
        coopStoreT(s11, &stage[to], 16u);
        workgroupBarrier();
        write(subgroup, lane, own_t + 16u, row0 + 16u, base, own_end);
        workgroupBarrier();
    }
}
