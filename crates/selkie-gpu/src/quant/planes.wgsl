// Values whose bits lie apart: bit k of byte b in a word is value 4 k + b's.
//
// Bits that lie apart are the quickest way through a small table: each bit of the result is a logic function of four
// bits, for 32 values at once.
#include "quant/group.wgsl"

// Where `mask` is set, the bits of `b`, elsewhere of `a`.
fn merged(a: vec4<u32>, b: vec4<u32>, mask: u32) -> vec4<u32> {
    return (a & vec4(~mask)) | (b & vec4(mask));
}

// The bytes of 32 values. Words from lo.x to hi.w: their bits, the lowest first. In each byte's column this turns a
// matrix of 8 by 8 bits, by swapping quarters, quarters of quarters and single bits.
fn bytes_of_planes(lo: vec4<u32>, hi: vec4<u32>) -> Bytes {
    let lo4 = merged(lo, hi << vec4(4u), 0xf0f0f0f0u);
    let hi4 = merged(lo >> vec4(4u), hi, 0xf0f0f0f0u);
    let first = vec4(lo4.xy, hi4.xy);
    let second = vec4(lo4.zw, hi4.zw);
    let first2 = merged(first, second << vec4(2u), 0xccccccccu);
    let second2 = merged(first >> vec4(2u), second, 0xccccccccu);
    let even = vec4(first2.x, second2.x, first2.z, second2.z);
    let odd = vec4(first2.y, second2.y, first2.w, second2.w);
    let even1 = merged(even, odd << vec4(1u), 0xaaaaaaaau);
    let odd1 = merged(even >> vec4(1u), odd, 0xaaaaaaaau);
    return Bytes(vec4(even1.x, odd1.x, even1.y, odd1.y), vec4(even1.z, odd1.z, even1.w, odd1.w));
}
