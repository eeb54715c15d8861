//! Plain Rust, for any processor. Arrays of eight, so that the compiler may use what vectors there are.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::array::from_fn;

use super::{Simd, Wide};

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

type F = [f32; 8];
type B = [u8; 32];

#[inline]
fn zip(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    from_fn(|i| f(a[i], b[i]))
}

/// Products of bytes, summed over the lower and the upper sixteen.
#[inline]
fn halves(q: B, a: B, zero: i32) -> [i32; 2] {
    let half = |k: usize| (16 * k..16 * k + 16).map(|i| (q[i] as i32 - zero) * (a[i] as i8 as i32)).sum();
    [half(0), half(1)]
}

// SAFETY of the memory operations: the trait's contract, pointers valid for the bytes named; all reads are unaligned.
impl Simd for Scalar {
    const LANES: usize = 8;
    const WIDE: Wide = Wide::Direct;
    const TILE: usize = 4;
    const FLOAT_TILE: usize = 4;
    type F = F;
    type B = B;
    type A = [f32; 2];
    type P = B;
    type N = [i32; 8];
    type I = [i32; 8];

    #[inline]
    fn macs(_bits: u32) -> usize {
        8
    }

    #[inline]
    fn prefetch(self, _p: *const u8) {}
    #[inline]
    fn splat(self, x: f32) -> F {
        [x; 8]
    }
    #[inline]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller's.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline]
    unsafe fn store(self, p: *mut f32, x: F) {
        // SAFETY: the caller's.
        unsafe { p.cast::<F>().write_unaligned(x) }
    }
    #[inline]
    unsafe fn load_f16(self, p: *const u16) -> F {
        // SAFETY: the caller's.
        let bits = unsafe { p.cast::<[u16; 8]>().read_unaligned() };
        bits.map(|b| self.f16(b))
    }
    #[inline]
    unsafe fn load_bf16(self, p: *const u16) -> F {
        // SAFETY: the caller's.
        let bits = unsafe { p.cast::<[u16; 8]>().read_unaligned() };
        bits.map(|b| f32::from_bits((b as u32) << 16))
    }
    #[inline]
    unsafe fn load_u8(self, p: *const u8) -> F {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u8; 8]>().read_unaligned() }.map(|x| x as f32)
    }
    #[inline]
    unsafe fn store_f16(self, p: *mut u16, x: F) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u16; 8]>().write_unaligned(x.map(|v| half::f16::from_f32(v).to_bits())) }
    }
    #[inline]
    fn add(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline]
    fn sub(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline]
    fn mul(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline]
    fn div(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline]
    fn fma(self, a: F, b: F, c: F) -> F {
        // Two roundings: a fused one is a library call where the processor has none.
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline]
    fn max(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline]
    fn min(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline]
    fn abs(self, a: F) -> F {
        a.map(f32::abs)
    }
    #[inline]
    fn round(self, a: F) -> F {
        a.map(f32::round_ties_even)
    }
    #[inline]
    fn pow2(self, a: F) -> F {
        a.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline]
    fn sum(self, a: F) -> f32 {
        let b: [f32; 4] = from_fn(|i| a[i] + a[i + 4]);
        (b[0] + b[2]) + (b[1] + b[3])
    }
    #[inline]
    fn reduce_max(self, a: F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline]
    unsafe fn store_i8(self, p: *mut i8, x: F) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[i8; 8]>().write_unaligned(self.round(x).map(|v| v as i8)) }
    }
    #[inline]
    fn f16(self, bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }

    #[inline]
    unsafe fn load_b(self, p: *const u8) -> B {
        // SAFETY: the caller's.
        unsafe { p.cast::<B>().read_unaligned() }
    }
    #[inline]
    unsafe fn store_b(self, p: *mut u8, x: B) {
        // SAFETY: the caller's.
        unsafe { p.cast::<B>().write_unaligned(x) }
    }
    #[inline]
    unsafe fn nibbles(self, p: *const u8) -> B {
        // SAFETY: the caller's.
        let x = unsafe { p.cast::<[u8; 16]>().read_unaligned() };
        from_fn(|i| if i < 16 { x[i] & 15 } else { x[i - 16] >> 4 })
    }
    #[inline]
    fn splat_b(self, x: u8) -> B {
        [x; 32]
    }
    #[inline]
    fn and(self, a: B, b: B) -> B {
        from_fn(|i| a[i] & b[i])
    }
    #[inline]
    fn or(self, a: B, b: B) -> B {
        from_fn(|i| a[i] | b[i])
    }
    #[inline]
    fn xor(self, a: B, b: B) -> B {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline]
    fn shr(self, a: B, n: u32) -> B {
        a.map(|x| x >> n)
    }
    #[inline]
    fn shl(self, a: B, n: u32) -> B {
        a.map(|x| x << n)
    }
    #[inline]
    fn lookup(self, table: &[u8; 16], index: B) -> B {
        index.map(|i| table[i as usize & 15])
    }
    #[inline]
    fn spread(self, bits: u32) -> B {
        from_fn(|i| if bits >> i & 1 == 1 { 0xff } else { 0 })
    }

    #[inline]
    fn a_zero(self) -> [f32; 2] {
        [0.0; 2]
    }
    #[inline]
    fn a_splat(self, x: f32) -> [f32; 2] {
        [x; 2]
    }
    #[inline]
    fn a_halves(self, low: f32, high: f32) -> [f32; 2] {
        [low, high]
    }
    #[inline]
    fn dot(self, acc: [f32; 2], q: B, a: B, scale: [f32; 2]) -> [f32; 2] {
        let sums = halves(q, a, 0);
        from_fn(|i| acc[i] + scale[i] * sums[i] as f32)
    }
    #[inline]
    fn dot_wide(self, acc: [f32; 2], q: B, a: B, scale: [f32; 2]) -> [f32; 2] {
        let sums = halves(q, a, 128);
        from_fn(|i| acc[i] + scale[i] * sums[i] as f32)
    }
    #[inline]
    fn a_sum(self, a: [f32; 2]) -> f32 {
        a[0] + a[1]
    }

    #[inline]
    unsafe fn interleave(self, rows: [B; 8], dst: *mut u8, stride: usize) {
        for g in 0..8 {
            for (r, row) in rows.iter().enumerate() {
                let four: [u8; 4] = from_fn(|i| row[4 * g + i]);
                // SAFETY: the caller's.
                unsafe { dst.add(g * stride + 4 * r).cast::<[u8; 4]>().write_unaligned(four) };
            }
        }
    }
    #[inline]
    unsafe fn load_p(self, p: *const u8) -> B {
        // SAFETY: the caller's.
        unsafe { p.cast::<B>().read_unaligned() }
    }
    #[inline]
    unsafe fn broadcast_p(self, p: *const i8) -> B {
        // SAFETY: the caller's.
        let four = unsafe { p.cast::<[u8; 4]>().read_unaligned() };
        from_fn(|i| four[i % 4])
    }
    #[inline]
    fn n_zero(self) -> [i32; 8] {
        [0; 8]
    }
    #[inline]
    fn mac(self, n: [i32; 8], w: B, a: B) -> [i32; 8] {
        let product = |i: usize| w[i] as i32 * a[i] as i8 as i32;
        from_fn(|i| n[i] + product(4 * i) + product(4 * i + 1) + product(4 * i + 2) + product(4 * i + 3))
    }
    #[inline]
    fn i_zero(self) -> [i32; 8] {
        [0; 8]
    }
    #[inline]
    fn widen(self, n: [i32; 8]) -> [i32; 8] {
        n
    }
    #[inline]
    fn widen16(self, n: [i32; 8]) -> [i32; 8] {
        n.map(|x| 16 * x)
    }
    #[inline]
    fn i_add(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        from_fn(|i| a[i] + b[i])
    }
    #[inline]
    fn to_f32(self, a: [i32; 8]) -> F {
        a.map(|x| x as f32)
    }
}
