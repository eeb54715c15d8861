//! The IQ2 formats: eight magnitudes at a time are a row of a grid, with a sign for each.

use super::{field, grids, half, signed};

/// `IQ2_XXS`: scale, and per 32 values two u32: four row numbers; four times 7 bits of signs and a 4-bit scale on top.
pub fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = half::<0, 66>(block);
    let groups = field::<2, 64, 66>(block).as_chunks::<8>().0;
    for (out, &[a, b, c, e, signs @ ..]) in out.as_chunks_mut::<32>().0.iter_mut().zip(groups) {
        let word = u32::from_le_bytes(signs);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for ((at, out), row) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().zip([a, b, c, e]) {
            let signs = grids::even_signs((word >> (7 * at)) as u8);
            signed_row(&grids::IQ2_XXS[usize::from(row)], signs, scale, out);
        }
    }
}

/// `IQ2_XS`: scale; per 8 values a u16 with a 9-bit row number and 7 bits of signs; 4-bit scales per 16 values.
pub fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let d = half::<0, 74>(block);
    let words = field::<2, 64, 74>(block).as_chunks::<2>().0;
    let scales = field::<66, 8, 74>(block);
    for ((at, out), word) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().zip(words) {
        let word = u16::from_le_bytes(*word);
        let signs = grids::even_signs((word >> 9) as u8);
        signed_row(&grids::IQ2_XS[usize::from(word & 511)], signs, sub_scale(d, scales, at), out);
    }
}

/// `IQ2_S`: scale; per 8 values the low byte of a row number; per 8 values a byte of signs; per 32 values a byte with the
/// four row numbers' upper two bits; 4-bit scales per 16 values.
pub fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let d = half::<0, 82>(block);
    let low = field::<2, 32, 82>(block);
    let signs = field::<34, 32, 82>(block);
    let high = field::<66, 8, 82>(block);
    let scales = field::<74, 8, 82>(block);
    for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let row = usize::from(low[at]) | usize::from(high[at / 4] >> (2 * (at % 4)) & 3) << 8;
        signed_row(&grids::IQ2_S[row], signs[at], sub_scale(d, scales, at), out);
    }
}

/// The scale of the eight values `at`: one nibble for 16 values.
fn sub_scale(d: f32, scales: &[u8; 8], at: usize) -> f32 {
    let nibble = scales[at / 4] >> (4 * (at / 2 % 2)) & 15;
    d * (0.5 + f32::from(nibble)) * 0.25
}

/// Writes eight magnitudes, signed and scaled.
fn signed_row(row: &[i8; 8], signs: u8, scale: f32, out: &mut [f32; 8]) {
    for ((at, out), &magnitude) in out.iter_mut().enumerate().zip(row) {
        *out = scale * signed(magnitude, signs, at);
    }
}
