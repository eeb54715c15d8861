// Rows of eight values out of -1, 0 and 1, each shifted by an eighth up or down. Values are read eightfold, so that
// the shift is 1 and no offset is left.
#include "quant/group.wgsl"

// Two rows of the grid, whose words hold one more than the values: the first four in the lower nibbles of their bytes,
// the others in the upper ones. Row a is shifted down where bit 0 of `down` is set, row b by bit 1.
fn shifted_rows(a: u32, b: u32, down: u32) -> vec4<u32> {
    let words = vec2(grids[GRID + a], grids[GRID + b]);
    let eightfold = vec4((words << vec2(3u)) & vec2(0x78787878u), (words >> vec2(1u)) & vec2(0x78787878u));
    // 8 less, and 1 more or less, byte by byte: no byte borrows from the next while 128 is added.
    let shift = select(vec2(0x79797979u), vec2(0x77777777u), (vec2(down) & vec2(1u, 2u)) != vec2(0u));
    return (eightfold.xzyw + shift.xxyy) ^ vec4(0x80808080u);
}
