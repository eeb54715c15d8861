//! `IQ1_S` and `IQ1_M`: eight values at a time are a row of -1, 0 and 1, shifted by an eighth up or down.

use super::{f16_to_f32, field, grids, half};

/// By how much a row is shifted.
const DELTA: f32 = 0.125;

/// `IQ1_S`: scale, 32 low bytes of row numbers, and per 32 values a u16: four times 3 high bits of row numbers, a 3-bit
/// scale, the shift's sign.
pub fn iq1_s(block: &[u8; 50], out: &mut [f32; 256]) {
    let d = half::<0, 50>(block);
    let low = field::<2, 32, 50>(block);
    let high = field::<34, 16, 50>(block).as_chunks::<2>().0;
    for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16::from_le_bytes(high[at / 4]);
        let dl = d * f32::from(2 * (word >> 12 & 7) + 1);
        let delta = if word & 0x8000 == 0 { DELTA } else { -DELTA };
        let row = u16::from(low[at]) | (word >> (3 * (at % 4)) & 7) << 8;
        shifted_row(row, dl, delta, out);
    }
}

/// `IQ1_M`: 32 low bytes of row numbers; per 16 values a byte with two times 3 high bits and the shift's sign; four u16,
/// each with four 3-bit scales (of 16 values) and, in its upper nibble, a quarter of the block's scale.
pub fn iq1_m(block: &[u8; 56], out: &mut [f32; 256]) {
    let low = field::<0, 32, 56>(block);
    let high = field::<32, 16, 56>(block);
    let mut words = [0; 4];
    for (word, stored) in words.iter_mut().zip(field::<48, 8, 56>(block).as_chunks::<2>().0) {
        *word = u16::from_le_bytes(*stored);
    }
    let d = f16_to_f32((0..4).fold(0, |d, at| d | (words[at] >> 12) << (4 * at)));
    for (at, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = words[at / 8] >> (3 * (at / 2 % 4)) & 7;
        let nibble = u16::from(high[at / 2] >> (4 * (at % 2)) & 15);
        let delta = if nibble & 8 == 0 { DELTA } else { -DELTA };
        shifted_row(u16::from(low[at]) | (nibble & 7) << 8, d * f32::from(2 * scale + 1), delta, out);
    }
}

/// Writes row `row` (11 bits) of the grid, shifted and scaled.
fn shifted_row(row: u16, scale: f32, delta: f32, out: &mut [f32; 8]) {
    for (out, &value) in out.iter_mut().zip(&grids::IQ1_S[usize::from(row) & 2047]) {
        *out = scale * (f32::from(value) + delta);
    }
}
