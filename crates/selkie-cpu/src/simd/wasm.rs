//! WebAssembly's 128-bit vectors: four f32, 32 bytes of weights in two registers.
//!
//! There is no question at run time: a module that a browser has compiled may use all its instructions. With relaxed
//! SIMD the multiply-add of floats is fused where the processor has one, and bytes are multiplied as bytes. That product
//! takes signed bytes with such of seven bits, and processors differ where the eighth bit is set: it never is here.
//! Weights of eight bits are widened to sixteen, which costs about the same on processors without a dot product of bytes.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::arch::wasm32::*;

use super::{Kernel, Simd, Wide};

/// Witness of SIMD128, and of relaxed SIMD where the crate is built for it.
#[derive(Clone, Copy)]
pub(crate) struct Wasm(());

/// Runs `kernel`, which is compiled with the features of the whole module. Each in a function of its own: in one with
/// several, engines run out of registers and of the will to optimise.
#[inline(never)]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Wasm(()))
}

const RELAXED: bool = cfg!(target_feature = "relaxed-simd");

/// Adding it to a small whole number leaves that in the low bits: 1.5 * 2^23.
const WHOLE: f32 = 12_582_912.0;

#[inline(always)]
fn madd(a: v128, b: v128, c: v128) -> v128 {
    #[cfg(target_feature = "relaxed-simd")]
    return f32x4_relaxed_madd(a, b, c);
    #[cfg(not(target_feature = "relaxed-simd"))]
    return f32x4_add(f32x4_mul(a, b), c);
}

/// `table[index]` for indices below 16.
#[inline(always)]
fn swizzle(table: v128, index: v128) -> v128 {
    #[cfg(target_feature = "relaxed-simd")]
    return i8x16_relaxed_swizzle(table, index);
    #[cfg(not(target_feature = "relaxed-simd"))]
    return i8x16_swizzle(table, index);
}

/// `a` in the lanes where `mask` is all ones, `b` where it is 0. For the greater and the smaller too: with relaxed SIMD the
/// compiler turns `f32x4_pmax` into `f32x4.relaxed_max`, which may do anything with what is not a number.
#[inline(always)]
fn select(a: v128, b: v128, mask: v128) -> v128 {
    #[cfg(target_feature = "relaxed-simd")]
    return i32x4_relaxed_laneselect(a, b, mask);
    #[cfg(not(target_feature = "relaxed-simd"))]
    return v128_bitselect(a, b, mask);
}

/// Products of signed bytes with bytes below 128, summed by two in sixteen bits.
#[inline(always)]
fn pairs(signed: v128, seven_bits: v128) -> v128 {
    #[cfg(target_feature = "relaxed-simd")]
    return i16x8_relaxed_dot_i8x16_i7x16(signed, seven_bits);
    #[cfg(not(target_feature = "relaxed-simd"))]
    {
        let low = i16x8_extmul_low_i8x16(signed, seven_bits);
        let high = i16x8_extmul_high_i8x16(signed, seven_bits);
        let even = i8x16_shuffle::<0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29>(low, high);
        let odd = i8x16_shuffle::<2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31>(low, high);
        i16x8_add(even, odd)
    }
}

/// Products of sixteen signed bytes, in sums of four.
#[inline(always)]
fn dot(q: v128, a: v128) -> v128 {
    let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(q), i16x8_extend_low_i8x16(a));
    let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(q), i16x8_extend_high_i8x16(a));
    i32x4_add(low, high)
}

/// `acc + scale * sums`
#[inline(always)]
fn scaled(acc: [v128; 2], sums: [v128; 2], scale: [v128; 2]) -> [v128; 2] {
    let [low, high] = sums.map(|sums| f32x4_convert_i32x4(sums));
    [madd(low, scale[0], acc[0]), madd(high, scale[1], acc[1])]
}

/// Four halves in the low bits of 32 each, to f32.
#[inline(always)]
fn from_f16(bits: v128) -> v128 {
    let rest = v128_and(bits, u32x4_splat(0x7fff));
    // The exponent's bias is 112 less than that of f32; the product is exact, for subnormal numbers too.
    let value = f32x4_mul(u32x4_shl(rest, 13), u32x4_splat((112 + 127) << 23));
    let special = v128_and(u32x4_gt(rest, u32x4_splat(0x7bff)), u32x4_splat(0x7f80_0000));
    let sign = u32x4_shl(v128_and(bits, u32x4_splat(0x8000)), 16);
    v128_or(v128_or(value, special), sign)
}

/// Four f32 to halves in the low bits of 32 each, to nearest even.
#[inline(always)]
fn to_f16(x: v128) -> v128 {
    let sign = v128_and(x, u32x4_splat(0x8000_0000));
    let rest = v128_xor(x, sign);
    // Normal halves: another bias, and the bits that go rounded away. What overflows becomes infinity on its own.
    let odd = v128_and(u32x4_shr(rest, 13), u32x4_splat(1));
    let rounded = i32x4_add(i32x4_add(rest, u32x4_splat(0xfff_u32.wrapping_sub(112 << 23))), odd);
    let normal = u32x4_shr(rounded, 13);
    // Subnormal ones: the addition rounds to multiples of 2^-24, the last bit of a half.
    let half = f32x4_splat(0.5);
    let subnormal = i32x4_sub(f32x4_add(rest, half), half);
    let value = select(subnormal, normal, u32x4_lt(rest, u32x4_splat(113 << 23)));
    let not_a_number = u32x4_gt(rest, u32x4_splat(0x7f80_0000));
    let special = select(u32x4_splat(0x7e00), u32x4_splat(0x7c00), not_a_number);
    let value = select(special, value, u32x4_gt(rest, u32x4_splat(0x477f_ffff)));
    v128_or(value, u32x4_shr(sign, 16))
}

// SAFETY of all blocks below: pointers are the caller's; memory operations of this set need no alignment.
impl Simd for Wasm {
    const LANES: usize = 4;
    const WIDE: Wide = Wide::Signed;
    const TILE: usize = 4;
    const DOTS: usize = 2;
    const FLOAT_TILE: usize = 4;
    type F = v128;
    type B = [v128; 2];
    type A = [v128; 2];
    type P = v128;
    type N = v128;
    type I = v128;

    #[inline(always)]
    fn words(bits: u32) -> bool {
        !RELAXED || bits > 6
    }

    /// A pair of products is at most `2 * 128 * (2^bits - 1)`, and a narrow sum holds 32767.
    #[inline(always)]
    fn macs(bits: u32) -> usize {
        match bits {
            0..=4 => 8,
            5 => 4,
            _ => 2,
        }
    }

    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
    #[inline(always)]
    fn splat(self, x: f32) -> v128 {
        f32x4_splat(x)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> v128 {
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: v128) {
        unsafe { v128_store(p.cast(), x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> v128 {
        from_f16(unsafe { i32x4_load_extend_u16x4(p) })
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> v128 {
        u32x4_shl(unsafe { i32x4_load_extend_u16x4(p) }, 16)
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> v128 {
        let words = i16x8_extend_low_u8x16(unsafe { v128_load32_zero(p.cast()) });
        f32x4_convert_i32x4(i32x4_extend_low_u16x8(words))
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: v128) {
        let bits = to_f16(x);
        unsafe { v128_store64_lane::<0>(u16x8_narrow_i32x4(bits, bits), p.cast()) }
    }
    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn div(self, a: v128, b: v128) -> v128 {
        f32x4_div(a, b)
    }
    #[inline(always)]
    fn fma(self, a: v128, b: v128, c: v128) -> v128 {
        madd(a, b, c)
    }
    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        select(a, b, f32x4_gt(a, b))
    }
    #[inline(always)]
    fn min(self, a: v128, b: v128) -> v128 {
        select(a, b, f32x4_lt(a, b))
    }
    #[inline(always)]
    fn abs(self, a: v128) -> v128 {
        f32x4_abs(a)
    }
    #[inline(always)]
    fn round(self, a: v128) -> v128 {
        f32x4_nearest(a)
    }
    #[inline(always)]
    fn pow2(self, a: v128) -> v128 {
        // The shift takes the bits of WHOLE out at the top.
        u32x4_shl(i32x4_add(f32x4_add(a, f32x4_splat(WHOLE)), i32x4_splat(127)), 23)
    }
    #[inline(always)]
    fn sum(self, a: v128) -> f32 {
        let two = f32x4_add(a, i32x4_shuffle::<2, 3, 2, 3>(a, a));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn reduce_max(self, a: v128) -> f32 {
        let two = self.max(a, i32x4_shuffle::<2, 3, 2, 3>(a, a));
        f32x4_extract_lane::<0>(self.max(two, i32x4_shuffle::<1, 1, 1, 1>(two, two)))
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: v128) {
        let magic = f32x4_splat(WHOLE);
        let whole = i32x4_sub(f32x4_add(x, magic), magic);
        let words = i16x8_narrow_i32x4(whole, whole);
        unsafe { v128_store32_lane::<0>(i8x16_narrow_i16x8(words, words), p.cast()) }
    }
    #[inline(always)]
    fn f16(self, bits: u16) -> f32 {
        // As `from_f16`.
        let rest = bits as u32 & 0x7fff;
        let value = f32::from_bits(rest << 13) * f32::from_bits((112 + 127) << 23);
        let special = if rest > 0x7bff { 0x7f80_0000 } else { 0 };
        f32::from_bits(value.to_bits() | special | (bits as u32 & 0x8000) << 16)
    }

    #[inline(always)]
    unsafe fn load_b(self, p: *const u8) -> [v128; 2] {
        unsafe { [v128_load(p.cast()), v128_load(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn store_b(self, p: *mut u8, x: [v128; 2]) {
        unsafe {
            v128_store(p.cast(), x[0]);
            v128_store(p.add(16).cast(), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn nibbles(self, p: *const u8) -> [v128; 2] {
        let (x, low) = (unsafe { v128_load(p.cast()) }, u8x16_splat(15));
        [v128_and(x, low), v128_and(u16x8_shr(x, 4), low)]
    }
    #[inline(always)]
    fn splat_b(self, x: u8) -> [v128; 2] {
        [u8x16_splat(x); 2]
    }
    #[inline(always)]
    fn and(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        [v128_and(a[0], b[0]), v128_and(a[1], b[1])]
    }
    #[inline(always)]
    fn or(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        [v128_or(a[0], b[0]), v128_or(a[1], b[1])]
    }
    #[inline(always)]
    fn xor(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        [v128_xor(a[0], b[0]), v128_xor(a[1], b[1])]
    }
    #[inline(always)]
    fn shr(self, a: [v128; 2], n: u32) -> [v128; 2] {
        let kept = u8x16_splat(0xff >> n);
        [v128_and(u16x8_shr(a[0], n), kept), v128_and(u16x8_shr(a[1], n), kept)]
    }
    #[inline(always)]
    fn shl(self, a: [v128; 2], n: u32) -> [v128; 2] {
        let kept = u8x16_splat(0xff << n);
        [v128_and(u16x8_shl(a[0], n), kept), v128_and(u16x8_shl(a[1], n), kept)]
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: [v128; 2]) -> [v128; 2] {
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        [swizzle(table, index[0]), swizzle(table, index[1])]
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> [v128; 2] {
        let (all, bit) = (u32x4_splat(bits), u64x2_splat(0x8040_2010_0804_0201));
        let low = i8x16_shuffle::<0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1>(all, all);
        let high = i8x16_shuffle::<2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3>(all, all);
        [u8x16_eq(v128_and(low, bit), bit), u8x16_eq(v128_and(high, bit), bit)]
    }

    #[inline(always)]
    fn a_zero(self) -> [v128; 2] {
        self.a_splat(0.0)
    }
    #[inline(always)]
    fn a_splat(self, x: f32) -> [v128; 2] {
        [f32x4_splat(x); 2]
    }
    #[inline(always)]
    fn a_halves(self, low: f32, high: f32) -> [v128; 2] {
        [f32x4_splat(low), f32x4_splat(high)]
    }
    #[inline(always)]
    fn dot(self, acc: [v128; 2], q: [v128; 2], a: [v128; 2], scale: [v128; 2]) -> [v128; 2] {
        if !RELAXED {
            return scaled(acc, [dot(q[0], a[0]), dot(q[1], a[1])], scale);
        }
        let wide = |q, a| i32x4_extadd_pairwise_i16x8(pairs(a, q));
        scaled(acc, [wide(q[0], a[0]), wide(q[1], a[1])], scale)
    }
    #[inline(always)]
    fn dot_wide(self, acc: [v128; 2], q: [v128; 2], a: [v128; 2], scale: [v128; 2]) -> [v128; 2] {
        // Less 128 is the same bits with the top one flipped, as a signed byte.
        let q = self.xor(q, self.splat_b(0x80));
        scaled(acc, [dot(q[0], a[0]), dot(q[1], a[1])], scale)
    }
    #[inline(always)]
    fn a_sum(self, a: [v128; 2]) -> f32 {
        self.sum(f32x4_add(a[0], a[1]))
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: [[v128; 2]; 8], dst: *mut u8, stride: usize) {
        // Four rows of four 32-bit groups at a time.
        for four in 0..2 {
            for half in 0..2 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|r| rows[4 * four + r][half]);
                let ab = [i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b)];
                let cd = [i32x4_shuffle::<0, 4, 1, 5>(c, d), i32x4_shuffle::<2, 6, 3, 7>(c, d)];
                for i in 0..2 {
                    let at = (4 * half + 2 * i) * stride + 16 * four;
                    unsafe {
                        v128_store(dst.add(at).cast(), i64x2_shuffle::<0, 2>(ab[i], cd[i]));
                        v128_store(dst.add(at + stride).cast(), i64x2_shuffle::<1, 3>(ab[i], cd[i]));
                    }
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn load_p(self, p: *const u8) -> v128 {
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast_p(self, p: *const i8) -> v128 {
        unsafe { v128_load32_splat(p.cast()) }
    }
    #[inline(always)]
    fn n_zero(self) -> v128 {
        i16x8_splat(0)
    }
    #[inline(always)]
    fn mac(self, n: v128, w: v128, a: v128) -> v128 {
        i16x8_add(n, pairs(a, w))
    }
    #[inline(always)]
    fn i_zero(self) -> v128 {
        i32x4_splat(0)
    }
    #[inline(always)]
    fn widen(self, n: v128) -> v128 {
        i32x4_extadd_pairwise_i16x8(n)
    }
    #[inline(always)]
    fn widen16(self, n: v128) -> v128 {
        i32x4_shl(i32x4_extadd_pairwise_i16x8(n), 4)
    }
    #[inline(always)]
    fn i_add(self, a: v128, b: v128) -> v128 {
        i32x4_add(a, b)
    }
    #[inline(always)]
    fn to_f32(self, a: v128) -> v128 {
        f32x4_convert_i32x4(a)
    }

    #[inline(always)]
    fn to_words(self, b: [v128; 2]) -> [[v128; 2]; 2] {
        b.map(|b| [i16x8_extend_low_i8x16(b), i16x8_extend_high_i8x16(b)])
    }
    #[inline(always)]
    fn mac_words(self, i: v128, w: v128, a: v128) -> v128 {
        i32x4_add(i, i32x4_dot_i16x8(w, a))
    }
}
