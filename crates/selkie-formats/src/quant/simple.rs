//! The plain block formats: 32 values with one scale, and a minimum in the `_1` kinds.
//!
//! Nibbles come in pairs: byte `j` holds value `j` below and value `j + 16` above. The fifth bits of the `Q5` formats are
//! one little-endian u32, bit `i` for value `i`.

use super::{
    encode::{self, Overflow},
    field, half,
    search::{affine, inverse, quantise, symmetric},
};

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

/// Encodes `Q4_0`.
pub fn put_q4_0(values: &[f32; 32], out: &mut [u8; 18]) -> Result<(), Overflow> {
    let [d0, d1, nibbles @ ..] = out;
    let (stored, q) = symmetric_block(values, -8.0)?;
    [*d0, *d1] = stored;
    put_nibbles(&q, nibbles);
    Ok(())
}

/// Encodes `Q4_1`.
pub fn put_q4_1(values: &[f32; 32], out: &mut [u8; 20]) -> Result<(), Overflow> {
    let [d0, d1, m0, m1, nibbles @ ..] = out;
    let (stored, q) = affine_block(values, 15.0)?;
    [*d0, *d1, *m0, *m1] = stored;
    put_nibbles(&q, nibbles);
    Ok(())
}

/// Encodes `Q5_0`.
pub fn put_q5_0(values: &[f32; 32], out: &mut [u8; 22]) -> Result<(), Overflow> {
    let [d0, d1, f0, f1, f2, f3, nibbles @ ..] = out;
    let (stored, q) = symmetric_block(values, -16.0)?;
    [*d0, *d1] = stored;
    [*f0, *f1, *f2, *f3] = fifth_bits(&q);
    put_nibbles(&q, nibbles);
    Ok(())
}

/// Encodes `Q5_1`.
pub fn put_q5_1(values: &[f32; 32], out: &mut [u8; 24]) -> Result<(), Overflow> {
    let [d0, d1, m0, m1, f0, f1, f2, f3, nibbles @ ..] = out;
    let (stored, q) = affine_block(values, 31.0)?;
    [*d0, *d1, *m0, *m1] = stored;
    [*f0, *f1, *f2, *f3] = fifth_bits(&q);
    put_nibbles(&q, nibbles);
    Ok(())
}

/// Encodes `Q8_0`. Nothing is searched: with 255 steps the obvious scale is hard to beat.
pub fn put_q8_0(values: &[f32; 32], out: &mut [u8; 34]) -> Result<(), Overflow> {
    let [d0, d1, bytes @ ..] = out;
    let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let (stored, d) = encode::half(largest / 127.0)?;
    [*d0, *d1] = stored;
    for (byte, &x) in bytes.iter_mut().zip(values) {
        *byte = quantise(x, inverse(d), -127.0, 127.0) as i8 as u8;
    }
    Ok(())
}

/// The stored scale, and integers above `low`.
fn symmetric_block(values: &[f32; 32], low: f32) -> Result<([u8; 2], [u8; 32]), Overflow> {
    let (stored, d) = encode::half(symmetric(values, &[1.0; 32], low))?;
    let inverse = inverse(d);
    Ok((stored, values.map(|x| (quantise(x, inverse, low, -low - 1.0) - low) as u8)))
}

/// The stored scale and minimum, and integers up to `high`.
fn affine_block(values: &[f32; 32], high: f32) -> Result<([u8; 4], [u8; 32]), Overflow> {
    let candidates = (-10i8..=10).map(|step| 0.1 * f32::from(step));
    let (d, m) = affine(values, &[1.0; 32], high, candidates, false);
    let ([d0, d1], d) = encode::half(d)?;
    let ([m0, m1], m) = encode::half(m)?;
    let inverse = inverse(d);
    Ok(([d0, d1, m0, m1], values.map(|x| quantise(x - m, inverse, 0.0, high) as u8)))
}

/// The fifth bits of 32 values.
fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    let bits = q.iter().enumerate().fold(0, |bits, (i, q)| bits | u32::from(q >> 4 & 1) << i);
    bits.to_le_bytes()
}

/// The low four bits of 32 values.
fn put_nibbles(q: &[u8; 32], out: &mut [u8; 16]) {
    for (j, out) in out.iter_mut().enumerate() {
        *out = q[j] & 15 | (q[j + 16] & 15) << 4;
    }
}
