// Tiles of TILE_T rows of x and 64 rows of a matrix, both 32 columns wide, and what 256 invocations sum of them: each TILE_T / 16
// rows by 4. The including kernel declares x, the weights with p.cols, p.groups and p.row_words, and
//   x_row(t): where the tile's row t of x starts, or NO_ROW, which it declares too.
const TILE = 64u;
const PER_T = TILE_T / 16u;
const LOADS = TILE_T / 32u; // of an invocation
// Quads of 4 columns, [8, rows]: neighbours read neighbours.
var<workgroup> tile_x: array<vec4<f32>, 8u * TILE_T>;
var<workgroup> tile_w: array<vec4<f32>, 8u * TILE>;

// Columns of group g. An invocation loads of the rows that start at `starts`.
fn load_x(starts: ptr<function, array<u32, LOADS>>, g: u32, thread: u32) {
    let col = g * 32u + thread % 8u * 4u;
    for (var n = 0u; n < LOADS; n++) {
        let start = (*starts)[n];
        var v = vec4<f32>();
        if start != NO_ROW {
            let at = start + col;
            if col + 3u < p.cols {
                v = vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
            } else {
                for (var j = 0u; col + j < p.cols; j++) {
                    v[j] = x[at + j];
                }
            }
        }
        tile_x[thread % 8u * TILE_T + thread / 8u + 32u * n] = v;
    }
}

// The same of rows first .. end of the matrix, as many as there are; `first` may lie before row 0, then it is larger than `end`.
fn load_w(first: u32, end: u32, g: u32, thread: u32) {
#if FORMAT_FLOAT
    for (var i = thread; i < 8u * TILE; i += 256u) {
        let r = first + i / 8u;
        var v = vec4<f32>();
        if r < end && g * 32u + i % 8u * 4u < p.cols {
            v = quad(r * p.row_words, g * 8u + i % 8u);
        }
        tile_w[i % 8u * TILE + i / 8u] = v;
    }
#else
    // A thread unpacks a group: a quarter of them work.
    if thread < TILE {
        let r = first + thread;
        if r < end {
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

// The tile's row of the matrix that component j of an invocation's sums belongs to. Pairs stay together where rows come in turns.
fn row_of_sum(tx: u32, j: u32) -> u32 {
#if PAIRS
    return 2u * tx + j % 2u + 32u * (j / 2u);
#else
    return tx + 16u * j;
#endif
}

// Adds the products of what is loaded: sums[i][j] of row ty + 16 i of x and row row_of_sum(tx, j) of the matrix.
fn add_tile(sums: ptr<function, array<vec4<f32>, PER_T>>, tx: u32, ty: u32) {
    for (var k = 0u; k < 8u; k++) {
        let at = k * TILE;
        let w0 = tile_w[at + row_of_sum(tx, 0u)];
        let w1 = tile_w[at + row_of_sum(tx, 1u)];
        let w2 = tile_w[at + row_of_sum(tx, 2u)];
        let w3 = tile_w[at + row_of_sum(tx, 3u)];
        for (var i = 0u; i < PER_T; i++) {
            let v = tile_x[k * TILE_T + ty + 16u * i];
            (*sums)[i] += vec4<f32>(dot(v, w0), dot(v, w1), dot(v, w2), dot(v, w3));
        }
    }
}

// All the sums of a tile.
fn sum_tile(sums: ptr<function, array<vec4<f32>, PER_T>>, first: u32, end: u32, thread: u32) {
    var starts: array<u32, LOADS>;
    for (var n = 0u; n < LOADS; n++) {
        starts[n] = x_row(thread / 8u + 32u * n);
    }
    for (var g = 0u; g < p.groups; g++) {
        load_x(&starts, g, thread);
        load_w(first, end, g, thread);
        workgroupBarrier();
        add_tile(sums, thread % 16u, thread / 16u);
        workgroupBarrier();
    }
}
