//! Super-blocks of 256 weights: eight groups whose scales are quantised themselves.
#![allow(unsafe_code, clippy::needless_range_loop)]

use selkie_formats::DType;

use super::{Format, IQ4_GRID, Scales, u16_at, u32_at};
use crate::simd::Simd;

/// The eight six-bit scales and eight six-bit minima that Q4_K and Q5_K pack in twelve bytes.
///
/// # Safety
/// `p` is valid for twelve bytes.
#[inline(always)]
unsafe fn six_bit_pairs(p: *const u8) -> ([u8; 8], [u8; 8]) {
    // The first four of each lie in the low bits of the first eight bytes; the others have their low nibbles in the last
    // four bytes and their top two bits above the first ones.
    // SAFETY: the caller's.
    let (a, b, c) = unsafe { (u32_at(p), u32_at(p.add(4)), u32_at(p.add(8))) };
    let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 6 & 0x0303_0303) << 4)];
    let mins = [b & 0x3f3f_3f3f, (c >> 4 & 0x0f0f_0f0f) | ((b >> 6 & 0x0303_0303) << 4)];
    let bytes = |x: [u32; 2]| (x[0] as u64 | (x[1] as u64) << 32).to_le_bytes();
    (bytes(scales), bytes(mins))
}

/// Scales and minima of Q4_K and Q5_K, whose blocks begin alike.
///
/// # Safety
/// `block` is valid for sixteen bytes.
#[inline(always)]
unsafe fn k_scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
    // SAFETY: the caller's.
    let (d, min, (scales, mins)) =
        unsafe { (s.f16(u16_at(block)), -s.f16(u16_at(block.add(2))), six_bit_pairs(block.add(4))) };
    for g in 0..8 {
        out.d[g] = d * scales[g] as f32;
        out.m[g] = min * mins[g] as f32;
    }
}

/// Two-bit quants; a byte holds the scale and the minimum of sixteen.
pub(crate) struct Q2K;
impl Format for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const BYTES: usize = 84;
    const GROUPS: usize = 8;
    const BITS: u32 = 2;
    const ZERO: u8 = 0;
    const OFFSETS: bool = true;
    const HALVES: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 84 bytes: sixteen of scales, 64 of quants, two f16.
        let (packed, d, min) = unsafe {
            (block.cast::<[u8; 16]>().read_unaligned(), s.f16(u16_at(block.add(80))), -s.f16(u16_at(block.add(82))))
        };
        for i in 0..16 {
            out.d[i] = d * (packed[i] & 15) as f32;
            out.m[i] = min * (packed[i] >> 4) as f32;
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        // SAFETY: a block has 84 bytes.
        let bytes = unsafe { s.load_b(block.add(16 + 32 * (g / 4))) };
        s.and(s.shr(bytes, 2 * (g % 4) as u32), s.splat_b(3))
    }
}

/// Three-bit quants, the third bit apart; six-bit signed scales of sixteen.
pub(crate) struct Q3K;
impl Format for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const BYTES: usize = 110;
    const GROUPS: usize = 8;
    const BITS: u32 = 3;
    const ZERO: u8 = 4;
    const OFFSETS: bool = false;
    const HALVES: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 110 bytes: 32 of high bits, 64 of quants, twelve of scales, one f16.
        let (a, b, c, d) = unsafe {
            let p = block.add(96);
            (u32_at(p), u32_at(p.add(4)), u32_at(p.add(8)), s.f16(u16_at(block.add(108))))
        };
        // Low nibbles of scales 0..8 and 8..16 in the nibbles of a and b, the top two bits in c.
        let low = 0x0f0f_0f0f;
        let top = |shift: u32| (c >> shift & 0x0303_0303) << 4;
        let words = [a & low | top(0), b & low | top(2), a >> 4 & low | top(4), b >> 4 & low | top(6)];
        for (i, word) in words.into_iter().enumerate() {
            for (j, scale) in word.to_le_bytes().into_iter().enumerate() {
                out.d[4 * i + j] = d * (scale as i32 - 32) as f32;
            }
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        // SAFETY: a block has 110 bytes.
        let (bits, bytes) = unsafe { (s.load_b(block), s.load_b(block.add(32 + 32 * (g / 4)))) };
        let low = s.and(s.shr(bytes, 2 * (g % 4) as u32), s.splat_b(3));
        let high = s.and(s.shr(bits, g as u32), s.splat_b(1));
        s.or(low, s.shl(high, 2))
    }
}

/// Four-bit quants with six-bit scales and minima.
pub(crate) struct Q4K;
impl Format for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const BYTES: usize = 144;
    const GROUPS: usize = 8;
    const BITS: u32 = 4;
    const ZERO: u8 = 0;
    const OFFSETS: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 144 bytes.
        unsafe { k_scales(s, block, out) }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        // SAFETY: a block has 144 bytes.
        let bytes = unsafe { s.load_b(block.add(16 + 32 * (g / 2))) };
        s.and(s.shr(bytes, 4 * (g % 2) as u32), s.splat_b(15))
    }
}

/// Five-bit quants, the fifth bit apart, with six-bit scales and minima.
pub(crate) struct Q5K;
impl Format for Q5K {
    const DTYPE: DType = DType::Q5_K;
    const BYTES: usize = 176;
    const GROUPS: usize = 8;
    const BITS: u32 = 5;
    const ZERO: u8 = 0;
    const OFFSETS: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 176 bytes.
        unsafe { k_scales(s, block, out) }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        // SAFETY: a block has 176 bytes.
        let (bits, bytes) = unsafe { (s.load_b(block.add(16)), s.load_b(block.add(48 + 32 * (g / 2)))) };
        let low = s.and(s.shr(bytes, 4 * (g % 2) as u32), s.splat_b(15));
        let high = s.and(s.shr(bits, g as u32), s.splat_b(1));
        s.or(low, s.shl(high, 4))
    }
}

/// Six-bit quants, the upper two bits apart; int8 scales of sixteen.
pub(crate) struct Q6K;
impl Format for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const BYTES: usize = 210;
    const GROUPS: usize = 8;
    const BITS: u32 = 6;
    const ZERO: u8 = 32;
    const OFFSETS: bool = false;
    const HALVES: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 210 bytes: 128 of low nibbles, 64 of high bits, sixteen scales, one f16.
        let (scales, d) =
            unsafe { (block.add(192).cast::<[i8; 16]>().read_unaligned(), s.f16(u16_at(block.add(208)))) };
        for i in 0..16 {
            out.d[i] = d * scales[i] as f32;
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        let (half, j) = (g / 4, g % 4);
        // SAFETY: a block has 210 bytes.
        let (bytes, bits) =
            unsafe { (s.load_b(block.add(64 * half + 32 * (j % 2))), s.load_b(block.add(128 + 32 * half))) };
        let low = s.and(s.shr(bytes, 4 * (j / 2) as u32), s.splat_b(15));
        let high = s.and(s.shr(bits, 2 * j as u32), s.splat_b(3));
        s.or(low, s.shl(high, 4))
    }
}

/// Nibbles that index a grid; six-bit signed scales.
pub(crate) struct Iq4Xs;
impl Format for Iq4Xs {
    const DTYPE: DType = DType::IQ4_XS;
    const BYTES: usize = 136;
    const GROUPS: usize = 8;
    const BITS: u32 = 8;
    const ZERO: u8 = 128;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 136 bytes: f16, two bytes of high bits, four of low nibbles, 128 of quants.
        let (d, high, low) = unsafe { (s.f16(u16_at(block)), u16_at(block.add(2)) as u32, u32_at(block.add(4))) };
        for g in 0..8 {
            let scale = (low >> (4 * g) & 15) | (high >> (2 * g) & 3) << 4;
            out.d[g] = d * (scale as i32 - 32) as f32;
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B {
        // SAFETY: a block has 136 bytes.
        s.lookup(&IQ4_GRID, unsafe { s.nibbles(block.add(8 + 16 * g)) })
    }
}
