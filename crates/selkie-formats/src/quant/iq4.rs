//! The IQ4 formats: nibbles that look their values up in one table of 16.

use super::{field, grids, half};

/// `IQ4_NL`: scale, 16 bytes of nibbles (value `j` below, `j + 16` above).
pub fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    table_values(&grids::IQ4_NL, field::<2, 16, 18>(block), half::<0, 18>(block), out);
}

/// `IQ4_XS`: scale; a u16 with the upper two bits of eight 6-bit scales, four bytes with their low nibbles; per 32 values
/// 16 bytes of nibbles as in `IQ4_NL`.
pub fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = half::<0, 136>(block);
    let high = u16::from_le_bytes(*field::<2, 2, 136>(block));
    let low = field::<4, 4, 136>(block);
    let qs = field::<8, 128, 136>(block).as_chunks::<16>().0;
    for ((sub, out), qs) in out.as_chunks_mut::<32>().0.iter_mut().enumerate().zip(qs) {
        let scale = low[sub / 2] >> (4 * (sub % 2)) & 15 | ((high >> (2 * sub) & 3) as u8) << 4;
        table_values(&grids::IQ4_NL, qs, d * (i32::from(scale) - 32) as f32, out);
    }
}

/// Looks up 32 nibbles (value `j` below, `j + 16` above).
pub fn table_values(table: &[i8; 16], qs: &[u8; 16], scale: f32, out: &mut [f32; 32]) {
    for (j, &q) in qs.iter().enumerate() {
        out[j] = scale * f32::from(table[usize::from(q & 15)]);
        out[j + 16] = scale * f32::from(table[usize::from(q >> 4)]);
    }
}
