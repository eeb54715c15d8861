//! The ternary formats: values -1, 0 and 1 with one scale for 256 of them.

use super::{field, half};

/// `TQ1_0`: 48 bytes of five values each, 4 bytes of four values each, scale.
///
/// A byte is a fraction in base 3, scaled to 256: multiplying by 3 brings digit after digit above the point. The first 32
/// bytes hold digit `n` of value `32 n + m`, the other 16 that of `160 + 16 n + m`, the last 4 that of `240 + 4 n + m`.
pub fn tq1_0(block: &[u8; 54], out: &mut [f32; 256]) {
    let d = half::<52, 54>(block);
    let (first, rest) = out.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    digits(field::<0, 32, 54>(block), d, first);
    digits(field::<32, 16, 54>(block), d, second);
    digits(field::<48, 4, 54>(block), d, third);
}

/// Writes digit after digit of all `bytes`, until `out` is full.
fn digits<const LEN: usize>(bytes: &[u8; LEN], d: f32, out: &mut [f32]) {
    let mut rest = *bytes;
    for out in out.as_chunks_mut::<LEN>().0 {
        for (out, rest) in out.iter_mut().zip(&mut rest) {
            let digit = (u16::from(*rest) * 3) >> 8;
            *rest = rest.wrapping_mul(3);
            *out = d * (i32::from(digit) - 1) as f32;
        }
    }
}

/// `TQ2_0`: 2-bit values (one more than the value; 32 bytes hold 128: byte `l` holds `l`, `l + 32`, …), scale.
pub fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = half::<64, 66>(block);
    let parts = field::<0, 64, 66>(block).as_chunks::<32>().0;
    for (at, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (out, &q) in out.iter_mut().zip(&parts[at / 4]) {
            *out = d * (i32::from(q >> (2 * (at % 4)) & 3) - 1) as f32;
        }
    }
}
