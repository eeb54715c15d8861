//! Stored values that are no numbers.

use std::fmt;

use crate::{DType, QuantError, quant};

/// How many of some values are NaN, and how many infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonFinite {
    /// Values that are NaN.
    pub nan: usize,
    /// Values that are infinite.
    pub infinite: usize,
}

impl NonFinite {
    /// Of `values`.
    pub fn of(values: &[f32]) -> Self {
        // Nearly always there are none, and this loop vectorises.
        if values.iter().fold(true, |finite, value| finite & value.is_finite()) {
            return Self::default();
        }
        let count = |which: fn(f32) -> bool| values.iter().filter(|&&value| which(value)).count();
        Self { nan: count(f32::is_nan), infinite: count(f32::is_infinite) }
    }

    /// Of stored blocks; a scale that is no number makes its whole block none.
    ///
    /// # Errors
    /// Where `blocks` are not whole ones, or `dtype` holds no weights.
    pub fn of_blocks(dtype: DType, blocks: &[u8]) -> Result<Self, QuantError> {
        /// Values decoded at a time; a multiple of every block's length.
        const PIECE: usize = 4096;
        if are_finite(dtype, blocks) {
            return Ok(Self::default());
        }
        let mut values = [0.0; PIECE];
        let mut sum = Self::default();
        for piece in blocks.chunks(PIECE / dtype.block_len() * dtype.block_bytes()) {
            let values = &mut values[..piece.len() / dtype.block_bytes() * dtype.block_len()];
            quant::decode(dtype, piece, values)?;
            sum = sum.and(Self::of(values));
        }
        Ok(sum)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { nan: self.nan + other.nan, infinite: self.infinite + other.infinite }
    }

    /// Whether there are none.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Whether these are whole floats, and all of them finite: by their exponents, several times as fast as decoding them.
fn are_finite(dtype: DType, bytes: &[u8]) -> bool {
    fn all<const N: usize>(bytes: &[u8], finite: impl Fn(&[u8; N]) -> bool) -> bool {
        let (values, rest) = bytes.as_chunks::<N>();
        rest.is_empty() && values.iter().fold(true, |all, value| all & finite(value))
    }
    match dtype {
        DType::F32 => all(bytes, |v| !u32::from_le_bytes(*v) & 0x7f80_0000 != 0),
        DType::F16 => all(bytes, |v| !u16::from_le_bytes(*v) & 0x7c00 != 0),
        DType::BF16 => all(bytes, |v| !u16::from_le_bytes(*v) & 0x7f80 != 0),
        _ => false,
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NonFinite { nan, infinite: 0 } => write!(f, "{nan} NaN"),
            NonFinite { nan: 0, infinite } => write!(f, "{infinite} infinite"),
            NonFinite { nan, infinite } => write!(f, "{nan} NaN and {infinite} infinite"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted() {
        let mut values = vec![1.0; 5000];
        assert!(NonFinite::of(&values).is_none());
        (values[0], values[4999], values[77]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let found = NonFinite::of(&values);
        assert_eq!(found.to_string(), "1 NaN and 2 infinite");
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(NonFinite::of_blocks(DType::F32, &bytes), Ok(found));
        let halves: Vec<u8> = [0x3c00u16, 0xfc00, 0x7bff, 0x7e00].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(NonFinite::of_blocks(DType::F16, &halves), Ok(NonFinite { nan: 1, infinite: 1 }));
        assert_eq!(NonFinite::of_blocks(DType::F16, &halves[..2]), Ok(NonFinite::default()));
        assert!(NonFinite::of_blocks(DType::F16, &halves[1..]).is_err());
        let halves: Vec<u8> = values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
        assert_eq!(NonFinite::of_blocks(DType::BF16, &halves), Ok(found));
    }

    #[test]
    fn a_scale_counts_for_its_block() {
        for dtype in DType::all().filter(|dtype| dtype.is_quantised()) {
            let zeros = vec![0; 4096 / dtype.block_len() * dtype.block_bytes() * 2];
            assert_eq!(NonFinite::of_blocks(dtype, &zeros).map(NonFinite::is_none), Ok(true), "{dtype}");
            assert!(NonFinite::of_blocks(dtype, &zeros[1..]).is_err(), "{dtype}");
        }
        let mut blocks = vec![0; 34 * 200];
        blocks[34 * 150..][..2].copy_from_slice(&0x7e00u16.to_le_bytes());
        assert_eq!(NonFinite::of_blocks(DType::Q8_0, &blocks), Ok(NonFinite { nan: 32, infinite: 0 }));
    }
}
