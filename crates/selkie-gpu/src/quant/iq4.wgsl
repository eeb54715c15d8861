// The uneven values of IQ4_NL and IQ4_XS: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
#include "quant/planes.wgsl"

// The values of a group, whose bits lie in the words of `code`, the lowest first. Which code means which value was
// searched for, so that each bit of the values is a function of three others; there is nothing else to be seen in it.
// The codes are in `planes.rs`, in the order of the values.
fn uneven(code: vec4<u32>) -> Bytes {
    let b4 = ~(code.y ^ (code.z | code.w));
    let b7 = code.w ^ (code.z | b4);
    let b1 = ~((code.x | code.w) ^ (b7 & ~(code.x & code.w)));
    let b5 = b1 ^ (code.w & ~code.z);
    let b3 = ~(code.y ^ ((code.y | code.z) & ~b5));
    let b2 = code.z ^ (b3 | ~code.x);
    let b0 = code.w | ~(b2 ^ b3);
    let b6 = code.x ^ (b0 & b3);
    return bytes_of_planes(vec4(b0, b1, b2, b3), vec4(b4, b5, b6, b7));
}
