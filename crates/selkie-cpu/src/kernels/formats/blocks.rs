//! Blocks of 32 weights with one scale.
#![allow(unsafe_code)]

use selkie_formats::DType;

use super::{Format, IQ4_GRID, Scales, u16_at, u32_at};
use crate::simd::Simd;

/// Five-bit quants: nibbles at `low`, their fifth bits in `high`.
///
/// # Safety
/// `low` is valid for sixteen bytes, `high` for four.
#[inline(always)]
unsafe fn five_bits<S: Simd>(s: S, low: *const u8, high: *const u8) -> S::B {
    // SAFETY: the caller's.
    let (low, high) = unsafe { (s.nibbles(low), s.spread(u32_at(high))) };
    s.or(low, s.and(high, s.splat_b(16)))
}

/// f16 scale, 16 bytes of nibbles; `d * (q - 8)`.
pub(crate) struct Q4_0;
impl Format for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
    const BYTES: usize = 18;
    const GROUPS: usize = 1;
    const BITS: u32 = 4;
    const ZERO: u8 = 8;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 18 bytes.
        out.d[0] = s.f16(unsafe { u16_at(block) });
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 18 bytes.
        unsafe { s.nibbles(block.add(2)) }
    }
}

/// f16 scale, f16 offset, 16 bytes of nibbles.
pub(crate) struct Q4_1;
impl Format for Q4_1 {
    const DTYPE: DType = DType::Q4_1;
    const BYTES: usize = 20;
    const GROUPS: usize = 1;
    const BITS: u32 = 4;
    const ZERO: u8 = 0;
    const OFFSETS: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 20 bytes.
        unsafe {
            out.d[0] = s.f16(u16_at(block));
            out.m[0] = s.f16(u16_at(block.add(2)));
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 20 bytes.
        unsafe { s.nibbles(block.add(4)) }
    }
}

/// f16 scale, 32 high bits, 16 bytes of nibbles; `d * (q - 16)`.
pub(crate) struct Q5_0;
impl Format for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const BYTES: usize = 22;
    const GROUPS: usize = 1;
    const BITS: u32 = 5;
    const ZERO: u8 = 16;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 22 bytes.
        out.d[0] = s.f16(unsafe { u16_at(block) });
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 22 bytes.
        unsafe { five_bits(s, block.add(6), block.add(2)) }
    }
}

/// f16 scale, f16 offset, 32 high bits, 16 bytes of nibbles.
pub(crate) struct Q5_1;
impl Format for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const BYTES: usize = 24;
    const GROUPS: usize = 1;
    const BITS: u32 = 5;
    const ZERO: u8 = 0;
    const OFFSETS: bool = true;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 24 bytes.
        unsafe {
            out.d[0] = s.f16(u16_at(block));
            out.m[0] = s.f16(u16_at(block.add(2)));
        }
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 24 bytes.
        unsafe { five_bits(s, block.add(8), block.add(4)) }
    }
}

/// f16 scale, 32 int8.
pub(crate) struct Q8_0;
impl Format for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const BYTES: usize = 34;
    const GROUPS: usize = 1;
    const BITS: u32 = 8;
    const ZERO: u8 = 128;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 34 bytes.
        out.d[0] = s.f16(unsafe { u16_at(block) });
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 34 bytes.
        s.xor(unsafe { s.load_b(block.add(2)) }, s.splat_b(0x80))
    }
}

/// f16 scale, 16 bytes of nibbles that index a grid.
pub(crate) struct Iq4Nl;
impl Format for Iq4Nl {
    const DTYPE: DType = DType::IQ4_NL;
    const BYTES: usize = 18;
    const GROUPS: usize = 1;
    const BITS: u32 = 8;
    const ZERO: u8 = 128;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 18 bytes.
        out.d[0] = s.f16(unsafe { u16_at(block) });
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // SAFETY: a block has 18 bytes.
        s.lookup(&IQ4_GRID, unsafe { s.nibbles(block.add(2)) })
    }
}

/// A power of two, 16 bytes of four-bit floats.
pub(crate) struct Mxfp4;
impl Format for Mxfp4 {
    const DTYPE: DType = DType::MXFP4;
    const BYTES: usize = 17;
    const GROUPS: usize = 1;
    const BITS: u32 = 5;
    const ZERO: u8 = 12;
    const OFFSETS: bool = false;
    #[inline(always)]
    unsafe fn scales<S: Simd>(_s: S, block: *const u8, out: &mut Scales) {
        // SAFETY: a block has 17 bytes.
        let exponent = unsafe { *block } as u32;
        // 2^(exponent - 128): the grid holds doubled values. The two smallest are subnormal.
        out.d[0] = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    }
    #[inline(always)]
    unsafe fn quants<S: Simd>(s: S, block: *const u8, _g: usize) -> S::B {
        // Twice 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, 12 added.
        const GRID: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];
        // SAFETY: a block has 17 bytes.
        s.lookup(&GRID, unsafe { s.nibbles(block.add(1)) })
    }
}
