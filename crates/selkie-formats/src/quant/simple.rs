//! The plain block formats: 32 values with one scale, and a minimum in the `_1` kinds.
//!
//! Nibbles come in pairs: byte `j` holds value `j` below and value `j + 16` above. The fifth bits of the `Q5` formats are
//! one little-endian u32, bit `i` for value `i`.

use super::{field, half};

/// `Q4_0`: scale; value = scale * (nibble - 8).
pub fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half::<0, 18>(block);
    for (j, &q) in field::<2, 16, 18>(block).iter().enumerate() {
        out[j] = d * (i32::from(q & 15) - 8) as f32;
        out[j + 16] = d * (i32::from(q >> 4) - 8) as f32;
    }
}

/// `Q4_1`: scale, minimum; value = scale * nibble + minimum.
pub fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half::<0, 20>(block), half::<2, 20>(block));
    for (j, &q) in field::<4, 16, 20>(block).iter().enumerate() {
        out[j] = d * f32::from(q & 15) + m;
        out[j + 16] = d * f32::from(q >> 4) + m;
    }
}

/// `Q5_0`: scale, fifth bits; value = scale * (five bits - 16).
pub fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = half::<0, 22>(block);
    let fifth = u32::from_le_bytes(*field::<2, 4, 22>(block));
    for (j, &q) in field::<6, 16, 22>(block).iter().enumerate() {
        let (low, high) = five_bits(q, fifth, j);
        out[j] = d * (low as i32 - 16) as f32;
        out[j + 16] = d * (high as i32 - 16) as f32;
    }
}

/// `Q5_1`: scale, minimum, fifth bits; value = scale * five bits + minimum.
pub fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (half::<0, 24>(block), half::<2, 24>(block));
    let fifth = u32::from_le_bytes(*field::<4, 4, 24>(block));
    for (j, &q) in field::<8, 16, 24>(block).iter().enumerate() {
        let (low, high) = five_bits(q, fifth, j);
        out[j] = d * low as f32 + m;
        out[j + 16] = d * high as f32 + m;
    }
}

/// `Q8_0`: scale; value = scale * signed byte.
pub fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half::<0, 34>(block);
    for (out, &q) in out.iter_mut().zip(field::<2, 32, 34>(block)) {
        *out = d * f32::from(q as i8);
    }
}

/// Values `j` and `j + 16` of a block: their nibbles with their fifth bits.
fn five_bits(nibbles: u8, fifth: u32, j: usize) -> (u32, u32) {
    let low = u32::from(nibbles & 15) | (fifth >> j & 1) << 4;
    let high = u32::from(nibbles >> 4) | (fifth >> (j + 16) & 1) << 4;
    (low, high)
}
