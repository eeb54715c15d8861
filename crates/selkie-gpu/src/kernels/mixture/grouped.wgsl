// Products of rows with the experts that they chose: a tile is rows of one expert with 64 rows of its matrix. Workgroups take
// tiles of the sorted list in turns, as many as there are.
#include "kernels/common.wgsl"
#include "kernels/mixture/experts.wgsl"
#if STAGE == pairs
#define PAIRS
#endif
#include "kernels/product/tile_sums.wgsl"

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tiles = sorted[0];
    for (var tile = id.y; tile < tiles; tile += n.y) {
        let e = sorted[1u + 3u * tile];
        expert = e;
        start = sorted[2u + 3u * tile];
        end = sorted[3u + 3u * tile];
        // The expert's rows in the chunk; those before it are past every end.
        let base = e * p.expert_rows - p.first;
        let first = base + id.x * TILE;
        let own_end = u32(clamp(i32(base + p.expert_rows), 0, i32(p.rows)));
        if first >= own_end && first + TILE - 1u >= own_end {
            continue;
        }
        var sums = array<vec4<f32>, PER_T>();
        sum_tile(&sums, first, own_end, thread);
        for (var i = 0u; i < PER_T; i++) {
            let t = start + thread / 16u + 16u * i;
            if t >= end {
                continue;
            }
            let at = sorted[p.list + t] * p.out_stride;
            for (var j = 0u; j < 4u; j += STORE_STEP) {
                let row = first + row_of_sum(thread % 16u, j);
                if row < own_end {
                    store(at, row - base, sums[i][j], sums[i][min(j + 1u, 3u)]);
                }
            }
        }
    }
}
