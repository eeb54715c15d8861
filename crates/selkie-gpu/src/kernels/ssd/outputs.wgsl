// What a chunk of rows reads: of the states before it, and of its own rows up to each, as masked products of matrices. A workgroup
// has all rows of a chunk and 64 channels of a head, an invocation four by four.
#include "kernels/ssd/head.wgsl"
#include "kernels/ssd/chunk.wgsl"

@group(0) @binding(B_BEFORE) var<storage, read> before: array<vec4<f32>>; // [chunks, n_heads, head_dim, width in quads]
@group(0) @binding(B_OUT) var<storage, read_write> out: array<f32>; // [rows, n_heads · head_dim]
// C [4 quads, CHUNK], states [4 quads, 64] and B [4 quads, CHUNK]; then weights [16, CHUNK] and x [16, 64].
var<workgroup> tile: array<vec4<f32>, 768>;

// Rows and channels four apart lie together, so that what neighbours read together does.
fn spread(i: u32) -> u32 {
    return i % 4u * 16u + i / 4u;
}

struct Rows {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

fn products(c: vec4<f32>, by: Rows) -> vec4<f32> {
    return vec4<f32>(dot(c, by.a), dot(c, by.b), dot(c, by.c), dot(c, by.d));
}

fn add_products(sums: Rows, c: Rows, by: Rows) -> Rows {
    return Rows(
        sums.a + products(c.a, by), sums.b + products(c.b, by), sums.c + products(c.c, by), sums.d + products(c.d, by),
    );
}

// What is left of four rows from `earlier` on in a row, and nothing of those behind it.
fn weighed(gram: vec4<f32>, row: u32, earlier: u32) -> vec4<f32> {
    let since = vec4<f32>(
        decays[row] - decays[earlier], decays[row] - decays[earlier + 1u],
        decays[row] - decays[earlier + 2u], decays[row] - decays[earlier + 3u],
    );
    let there = vec4<bool>(earlier <= row, earlier + 1u <= row, earlier + 2u <= row, earlier + 3u <= row);
    return select(vec4<f32>(), exp(min(since, vec4<f32>())) * gram, there);
}

fn store(row: u32, head: u32, channel: u32, sum: vec4<f32>, d: f32) {
    if row >= step.own {
        return;
    }
    let y = sum + d * x_quad(row, head, channel);
    let to = p.out_offset + (step.first + row) * p.out_stride + head * p.head_dim + channel;
    for (var k = 0u; k < 4u && channel + k < p.head_dim; k++) {
        out[to + k] = y[k];
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let quads = (p.width + 3u) / 4u;
    let channel0 = id.x * 64u;
    let head = id.y;
    let first = id.z * CHUNK;
    sum_up(thread, head, first);
    let i = thread % 16u; // channels 4i.., and rows of B
    let j = thread / 16u; // rows 4j..
    // By rows, in variables with names: compilers keep those in registers, arrays not always.
    var sums = Rows();
    var grams = Rows();
    let states = ((id.z * p.n_heads + head) * p.head_dim + channel0) * quads;
    for (var quad0 = 0u; quad0 < quads; quad0 += 4u) {
        let q = quad0 + thread % 4u;
        let line = thread / 4u;
        let at = thread % 4u * 64u;
        tile[at + line] = c_quad(first + line, head, 4u * q);
        var s = vec4<f32>();
        if channel0 + line < p.head_dim && q < quads {
            s = before[states + line * quads + q];
        }
        tile[256u + at + spread(line)] = s;
        tile[512u + at + spread(line)] = b_quad(first + line, head, 4u * q);
        workgroupBarrier();
        for (var k = 0u; k < 256u; k += 64u) {
            let c = Rows(tile[k + 4u * j], tile[k + 4u * j + 1u], tile[k + 4u * j + 2u], tile[k + 4u * j + 3u]);
            let s = Rows(tile[256u + k + i], tile[272u + k + i], tile[288u + k + i], tile[304u + k + i]);
            sums = add_products(sums, c, s);
            let b = Rows(tile[512u + k + i], tile[528u + k + i], tile[544u + k + i], tile[560u + k + i]);
            grams = add_products(grams, c, b);
        }
        workgroupBarrier();
    }
    sums.a *= exp(decays[4u * j]);
    sums.b *= exp(decays[4u * j + 1u]);
    sums.c *= exp(decays[4u * j + 2u]);
    sums.d *= exp(decays[4u * j + 3u]);
    // The weights of rows of B in each row.
    grams.a = weighed(grams.a, 4u * j, 4u * i);
    grams.b = weighed(grams.b, 4u * j + 1u, 4u * i);
    grams.c = weighed(grams.c, 4u * j + 2u, 4u * i);
    grams.d = weighed(grams.d, 4u * j + 3u, 4u * i);
    for (var row0 = 0u; row0 < min(CHUNK, step.own - first); row0 += 16u) {
        if i / 4u == row0 / 16u {
            let to = 64u * (i % 4u) + j;
            tile[to] = vec4<f32>(grams.a.x, grams.b.x, grams.c.x, grams.d.x);
            tile[to + 16u] = vec4<f32>(grams.a.y, grams.b.y, grams.c.y, grams.d.y);
            tile[to + 32u] = vec4<f32>(grams.a.z, grams.b.z, grams.c.z, grams.d.z);
            tile[to + 48u] = vec4<f32>(grams.a.w, grams.b.w, grams.c.w, grams.d.w);
        }
        tile[256u + thread] = x_quad(first + row0 + j, head, channel0 + 4u * i);
        workgroupBarrier();
        for (var row = 0u; row < 16u; row++) {
            let weights = tile[row * 16u + j];
            let x = tile[256u + row * 16u + i];
            sums.a += weights.x * x;
            sums.b += weights.y * x;
            sums.c += weights.z * x;
            sums.d += weights.w * x;
        }
        workgroupBarrier();
    }
    let d = d_of(head);
    let row = first + 4u * j;
    store(row, head, channel0 + 4u * i, sums.a, d);
    store(row + 1u, head, channel0 + 4u * i, sums.b, d);
    store(row + 2u, head, channel0 + 4u * i, sums.c, d);
    store(row + 3u, head, channel0 + 4u * i, sums.d, d);
}
