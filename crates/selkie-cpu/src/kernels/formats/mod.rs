//! How blocks of quantised weights unpack: one small decoder per format, written over the vector vocabulary.
//!
//! All formats look alike to the kernels: groups of 32 unsigned integers `q` with a scale `d` and an offset `m` each
//! (or one per half group), and the weight is `d * (q - ZERO) + m`.
#![allow(unsafe_code)]

mod blocks;
mod super_blocks;

pub(crate) use blocks::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use selkie_formats::DType;
pub(crate) use super_blocks::{Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};

use crate::simd::Simd;

/// Weights in a group: what shares a scale with one group of activations.
pub(crate) const GROUP: usize = 32;

/// Scales and offsets of one block: an entry per group, or two where [`Format::HALVES`].
pub(crate) struct Scales {
    pub(crate) d: [f32; 16],
    pub(crate) m: [f32; 16],
}

impl Scales {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { d: [0.0; 16], m: [0.0; 16] }
    }
}

/// A block format with a fast integer path.
pub(crate) trait Format {
    const DTYPE: DType;
    /// Bytes of a block. A constant, since [`DType::block_bytes`] looks into a table.
    const BYTES: usize;
    /// Groups in a block.
    const GROUPS: usize;
    /// Bits of `q`.
    const BITS: u32;
    /// The `q` that stands for zero. 128 for eight-bit formats.
    const ZERO: u8;
    /// Whether `m` is not always 0.
    const OFFSETS: bool;
    /// Whether every sixteen weights have their own scale.
    const HALVES: bool = false;

    /// Reads the block's scales.
    ///
    /// # Safety
    /// `block` is valid for the bytes of a block.
    unsafe fn scales<S: Simd>(s: S, block: *const u8, out: &mut Scales);

    /// Unpacks group `g`.
    ///
    /// # Safety
    /// `block` is valid for the bytes of a block, and `g < GROUPS`.
    unsafe fn quants<S: Simd>(s: S, block: *const u8, g: usize) -> S::B;
}

/// Runs `$body` with `$F` standing for the format of `$dtype`; `$other` for types without a fast integer path.
macro_rules! with_format {
    ($dtype:expr, $F:ident => $body:expr, else $other:expr) => {{
        use $crate::kernels::formats as f;
        match $dtype {
            selkie_formats::DType::Q4_0 => with_format!(@ $F, f::Q4_0, $body),
            selkie_formats::DType::Q4_1 => with_format!(@ $F, f::Q4_1, $body),
            selkie_formats::DType::Q5_0 => with_format!(@ $F, f::Q5_0, $body),
            selkie_formats::DType::Q5_1 => with_format!(@ $F, f::Q5_1, $body),
            selkie_formats::DType::Q8_0 => with_format!(@ $F, f::Q8_0, $body),
            selkie_formats::DType::Q2_K => with_format!(@ $F, f::Q2K, $body),
            selkie_formats::DType::Q3_K => with_format!(@ $F, f::Q3K, $body),
            selkie_formats::DType::Q4_K => with_format!(@ $F, f::Q4K, $body),
            selkie_formats::DType::Q5_K => with_format!(@ $F, f::Q5K, $body),
            selkie_formats::DType::Q6_K => with_format!(@ $F, f::Q6K, $body),
            selkie_formats::DType::IQ4_NL => with_format!(@ $F, f::Iq4Nl, $body),
            selkie_formats::DType::IQ4_XS => with_format!(@ $F, f::Iq4Xs, $body),
            selkie_formats::DType::MXFP4 => with_format!(@ $F, f::Mxfp4, $body),
            _ => $other,
        }
    }};
    (@ $F:ident, $format:ty, $body:expr) => {{
        type $F = $format;
        $body
    }};
}
pub(crate) use with_format;

/// Whether weights of this type are multiplied as integers with activations in Q8.
pub(crate) fn has_integer_path(dtype: DType) -> bool {
    with_format!(dtype, F => F::DTYPE == dtype, else false)
}

/// Reads a little-endian u16.
///
/// # Safety
/// `p` is valid for two bytes.
#[inline(always)]
unsafe fn u16_at(p: *const u8) -> u16 {
    // SAFETY: the caller's.
    u16::from_le(unsafe { p.cast::<u16>().read_unaligned() })
}

/// Reads a little-endian u32.
///
/// # Safety
/// `p` is valid for four bytes.
#[inline(always)]
unsafe fn u32_at(p: *const u8) -> u32 {
    // SAFETY: the caller's.
    u32::from_le(unsafe { p.cast::<u32>().read_unaligned() })
}

/// The non-linear four-bit grid of IQ4_NL and IQ4_XS, 128 added.
const IQ4_GRID: [u8; 16] = {
    let grid: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = (grid[i] as u8) ^ 0x80;
        i += 1;
    }
    out
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_types() {
        let mut formats = 0;
        for dtype in DType::all() {
            with_format!(dtype, F => {
                assert_eq!((F::DTYPE, F::BYTES, F::GROUPS * GROUP), (dtype, dtype.block_bytes(), dtype.block_len()));
                formats += 1;
            }, else ());
        }
        assert_eq!(formats, 13);
    }
}
