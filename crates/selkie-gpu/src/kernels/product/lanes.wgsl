// A row of a matrix and the rows that it is multiplied with: LANES invocations go down a row, each taking every LANES-th part.
// The including kernel declares the weights with p.row_words, COLS and GROUPS of a row, and quad_of_x.
const THREADS = 256u;
var<workgroup> partial: array<f32, THREADS>;

// A part is what is unpacked at once: four values of plain numbers, a group of 32 of a block format.
#if FORMAT_FLOAT
const PARTS = (COLS + 3u) / 4u;
const QUADS_OF_PART = 1u;
#else
const PARTS = GROUPS;
const QUADS_OF_PART = 8u;
#endif

// The product of part i of the row at word `base` with the quads of x from `at` on.
fn part_of(base: u32, i: u32, at: u32) -> f32 {
#if FORMAT_FLOAT
    return dot(quad(base, i), quad_of_x(at));
#else
    let w = group(base, GROUPS, i);
    var lo = 0.0;
    var hi = 0.0;
#if FORMAT_OFFSETS
    var all_lo = vec4<f32>();
    var all_hi = vec4<f32>();
#endif
    for (var j = 0u; j < 4u; j++) {
        let xl = quad_of_x(at + j);
        let xh = quad_of_x(at + 4u + j);
        lo += dot(vec4<f32>(unpack4xI8(w.lo[j])), xl);
        hi += dot(vec4<f32>(unpack4xI8(w.hi[j])), xh);
#if FORMAT_OFFSETS
        all_lo += xl;
        all_hi += xh;
#endif
    }
    var sum = w.d.x * lo + w.d.y * hi;
#if FORMAT_OFFSETS
    sum += w.m.x * dot(all_lo, vec4<f32>(1.0)) + w.m.y * dot(all_hi, vec4<f32>(1.0));
#endif
    return sum;
#endif
}

// The lane's share of a row's sum.
fn share(row: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < PARTS; i += LANES) {
        sum += part_of(row * p.row_words, i, i * QUADS_OF_PART);
    }
    return sum;
}

// The sum of the shares of LANES neighbours.
fn together(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    var sum = value;
    for (var step_over = LANES / 2u; step_over > 0u; step_over >>= 1u) {
        sum += subgroupShuffleXor(sum, step_over);
    }
    return sum;
#else
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half >>= 1u) {
        if thread % LANES < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    return partial[thread / LANES * LANES];
#endif
}
