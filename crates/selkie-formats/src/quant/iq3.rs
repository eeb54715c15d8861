//! The IQ3 formats: four magnitudes at a time are a row of a grid, with a sign for each.

use super::{field, grids, half, signed};

/// `IQ3_XXS`: scale; per 4 values a row number; per 32 values a u32 with four times 7 bits of signs and a 4-bit scale on
/// top.
pub fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let d = half::<0, 98>(block);
    let rows = field::<2, 64, 98>(block);
    let words = field::<66, 32, 98>(block).as_chunks::<4>().0;
    for ((at, out), rows) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().zip(rows.as_chunks::<2>().0) {
        let word = u32::from_le_bytes(words[at / 4]);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let signs = grids::even_signs((word >> (7 * (at % 4))) as u8);
        let rows = rows.map(|row| &grids::IQ3_XXS[usize::from(row)]);
        signed_rows(rows, signs, scale, out);
    }
}

/// `IQ3_S`: scale; per 4 values the low byte of a row number; per 32 values a byte with the eight row numbers' ninth bits;
/// per 8 values a byte of signs; 4-bit scales per 32 values.
pub fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = half::<0, 110>(block);
    let low = field::<2, 64, 110>(block).as_chunks::<2>().0;
    let ninth = field::<66, 8, 110>(block);
    let signs = field::<74, 32, 110>(block);
    let scales = field::<106, 4, 110>(block);
    for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let nibble = scales[at / 8] >> (4 * (at / 4 % 2)) & 15;
        let scale = d * f32::from(1 + 2 * nibble);
        let ninth = usize::from(ninth[at / 4] >> (2 * (at % 4)));
        let [first, second] = low[at].map(usize::from);
        let rows = [first | (ninth & 1) << 8, second | (ninth >> 1 & 1) << 8];
        signed_rows(rows.map(|row| &grids::IQ3_S[row]), signs[at], scale, out);
    }
}

/// Writes two rows of four magnitudes, signed and scaled.
fn signed_rows(rows: [&[i8; 4]; 2], signs: u8, scale: f32, out: &mut [f32; 8]) {
    let [[a, b, c, d], [e, f, g, h]] = rows;
    for ((at, out), &magnitude) in out.iter_mut().enumerate().zip(&[a, b, c, d, e, f, g, h]) {
        *out = scale * signed(*magnitude, signs, at);
    }
}
