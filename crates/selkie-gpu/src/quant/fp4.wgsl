// 4-bit floats, doubled: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
#include "quant/planes.wgsl"

// The values of a group, whose bits lie in the words of `code`, the lowest first. A code is the value in two's
// complement, but 8, 12 and -12 do not fit: they have the codes of 5, 7 and -5, which do not occur.
fn fp4(code: vec4<u32>) -> Bytes {
    let misfits = code.x & (code.z ^ code.w);
    let third = (code.z & ~misfits) | (code.y & misfits);
    return bytes_of_planes(vec4(code.xy & vec2(~misfits), third, code.w ^ misfits), vec4(code.w));
}
