//! Plain numbers: one value a "block".

use super::encode::{Overflow, half};

/// `F32`.
pub fn f32(stored: &[u8; 4], [out]: &mut [f32; 1]) {
    *out = f32::from_le_bytes(*stored);
}

/// `F16`.
pub fn f16(stored: &[u8; 2], [out]: &mut [f32; 1]) {
    *out = f16_to_f32(u16::from_le_bytes(*stored));
}

/// `BF16`: the upper half of an f32.
pub fn bf16(stored: &[u8; 2], [out]: &mut [f32; 1]) {
    *out = f32::from_bits(u32::from(u16::from_le_bytes(*stored)) << 16);
}

/// `F64`, rounded.
pub fn f64(stored: &[u8; 8], [out]: &mut [f32; 1]) {
    *out = f64::from_le_bytes(*stored) as f32;
}

/// Encodes `F32`.
pub fn put_f32([value]: &[f32; 1], out: &mut [u8; 4]) -> Result<(), Overflow> {
    *out = value.to_le_bytes();
    Ok(())
}

/// Encodes `F16`, to the nearest, ties to even.
pub fn put_f16([value]: &[f32; 1], out: &mut [u8; 2]) -> Result<(), Overflow> {
    (*out, _) = half(*value)?;
    Ok(())
}

/// Encodes `BF16`, to the nearest, ties to even.
pub fn put_bf16([value]: &[f32; 1], out: &mut [u8; 2]) -> Result<(), Overflow> {
    let rounded = half::bf16::from_f32(*value);
    *out = rounded.to_le_bytes();
    if rounded.is_finite() { Ok(()) } else { Err(Overflow) }
}

/// The number whose half-precision bits are `bits`, exactly; without branches, so that loops over it vectorise.
pub fn f16_to_f32(bits: u16) -> f32 {
    /// Moves the exponent from a half's bias (15) to a float's (127), and makes subnormals normal.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff) << 13;
    let finite = (f32::from_bits(rest) * REBIAS).to_bits();
    let special = rest | 0x7f80_0000;
    f32::from_bits(sign | if bits & 0x7c00 == 0x7c00 { special } else { finite })
}

#[cfg(test)]
mod tests {
    #[test]
    fn halves_are_exact() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits).to_f32();
            let got = super::f16_to_f32(bits);
            assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{bits:#x}: {got} for {want}");
        }
    }
}
