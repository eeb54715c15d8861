// A product for each head, of one row: out[h, r] = weights[h, r] . x[h], a workgroup for p.per_group rows of a head. LANES
// invocations go down a row. With PARTS the input is attention's, of which parts may still have to be joined. With LATENT the
// results are the first part of each query of latent attention, and what is left of queries, keys and values is made beside.
#include "kernels/common.wgsl"

struct Params {
    cols: u32,
    groups: u32, // of 32 columns
    first_head: u32, // of the chunk
    heads: u32, // in it
    head_out: u32, // rows of a head
    row_words: u32,
    per_group: u32, // rows of a workgroup
    x_offset: u32,
    out_offset: u32,
    out_head: u32, // from a head to the next
    // Of latent attention.
    n_heads: u32,
    turned: u32, // channels of a head that the rotary embedding has
    q_rope: u32,
    c: u32,
    k_rope: u32,
    k_out: u32,
    v_out: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [n_heads, out_head]
@group(0) @binding(B_X) var<storage, read> x: array<f32>; // [n_heads, cols]
#if B_PARTS
@group(0) @binding(B_PARTS) var<storage, read> parts: array<f32>; // [splits, n_heads, COLS in quads + 2]
#endif
@group(0) @binding(B_WEIGHTS4) var<storage, read> weights4: array<vec4<u32>>; // [n_heads, head_out, row_words / 4]
@group(0) @binding(B_WEIGHTS) var<storage, read> weights: array<u32>; // the same
#if B_GRIDS
@group(0) @binding(B_GRIDS) var<storage, read> grids: array<u32>;
#endif
#include "quant/FORMAT.wgsl"

const THREADS = 256u;
var<workgroup> partial: array<f32, THREADS>;
// The head's input: nine quads of room for every eight keep neighbours out of each other's banks.
var<workgroup> made: array<vec4<f32>, ROOM>;

fn quad_of_x(i: u32) -> vec4<f32> {
    return made[i + i / 8u];
}

#include "kernels/together.wgsl"

#if B_PARTS
#include "kernels/heads/parts.wgsl"
#endif
#if LATENT
#include "kernels/heads/latent.wgsl"
#endif

#if FORMAT_FLOAT
fn part(base: u32, i: u32) -> f32 {
    let w = octet(base, i);
    return dot(w.lo, quad_of_x(2u * i)) + dot(w.hi, quad_of_x(2u * i + 1u));
}
#define UNITS ((p.cols + 7u) / 8u)
#else
fn part(base: u32, g: u32) -> f32 {
    let w = group(base, p.groups, g);
    var sum = 0.0;
    for (var i = 0u; i < 4u; i++) {
        let xl = quad_of_x(g * 8u + i);
        let xh = quad_of_x(g * 8u + 4u + i);
        sum += w.d.x * dot(vec4<f32>(unpack4xI8(w.lo[i])), xl) + w.d.y * dot(vec4<f32>(unpack4xI8(w.hi[i])), xh);
        sum += w.m.x * dot(xl, vec4<f32>(1.0)) + w.m.y * dot(xh, vec4<f32>(1.0));
    }
    return sum;
}
#define UNITS p.groups
#endif

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let which = group_index(id, n);
    let per_head = (p.head_out + p.per_group - 1u) / p.per_group;
    if which >= per_head * p.heads {
#if LATENT
        beside(which - per_head * p.heads, thread);
#endif
        return;
    }
    let in_chunk = which / per_head;
    let head = p.first_head + in_chunk;
    for (var i = thread; i < p.groups * 8u; i += THREADS) {
#if B_PARTS
        let v = joined(head, i);
#else
        var v = vec4<f32>();
        for (var j = 0u; j < 4u; j++) {
            if 4u * i + j < p.cols {
                v[j] = x[p.x_offset + head * p.cols + 4u * i + j];
            }
        }
#endif
        made[i + i / 8u] = v;
    }
    workgroupBarrier();
    let lane = thread % LANES;
    let first = which % per_head * p.per_group;
    for (var r = first; r < first + p.per_group; r += THREADS / LANES) {
        let row = r + thread / LANES;
        let there = row < p.head_out;
        let base = select(0u, in_chunk * p.head_out + row, there) * p.row_words;
        var sum = 0.0;
        for (var i = lane; i < UNITS; i += LANES) {
            sum += part(base, i);
        }
        sum = together(thread, sum);
        if lane == 0u && there {
            out[p.out_offset + head * p.out_head + row] = sum;
        }
    }
}
