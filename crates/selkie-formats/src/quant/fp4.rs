//! The 4-bit float formats.

use super::{field, grids, iq4::table_values};

/// `MXFP4`: an exponent (E8M0), 16 bytes of nibbles (value `j` below, `j + 16` above).
pub fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let [exponent, qs @ ..] = block;
    table_values(&grids::FP4_DOUBLED, qs, half_power(*exponent), out);
}

/// `NVFP4`: four scales (unsigned E4M3) of 16 values each; per 16 values 8 bytes of nibbles (value `j` below, `j + 8` above).
pub fn nvfp4(block: &[u8; 36], out: &mut [f32; 64]) {
    let scales = field::<0, 4, 36>(block);
    let parts = field::<4, 32, 36>(block).as_chunks::<8>().0;
    for ((out, qs), &scale) in out.as_chunks_mut::<16>().0.iter_mut().zip(parts).zip(scales) {
        let d = half_e4m3(scale);
        for (j, &q) in qs.iter().enumerate() {
            out[j] = d * f32::from(grids::FP4_DOUBLED[usize::from(q & 15)]);
            out[j + 8] = d * f32::from(grids::FP4_DOUBLED[usize::from(q >> 4)]);
        }
    }
}

/// Half of `2^(e - 127)`: half, because the table of values is doubled. The two smallest are subnormal.
fn half_power(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

/// Half of an unsigned 8-bit float with 4 bits of exponent (bias 7) and 3 of mantissa; 0x7f is no number and
/// reads as 0. The top bit is not looked at.
fn half_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(bits >> 3 & 15), f32::from(bits & 7));
    if bits == 0x7f {
        0.0
    } else if exponent == 0 {
        mantissa * f32::from_bits((127 - 10) << 23)
    } else {
        // (1 + mantissa / 8) * 2^(exponent - 7) / 2
        (8.0 + mantissa) * f32::from_bits((127 + exponent - 11) << 23)
    }
}
