//! `Q1_0` and `Q2_0`: one or two bits a value, lowest first, with one scale.

use super::{field, half};

/// `Q1_0`: scale, 128 bits; value = scale where the bit is set, else -scale.
pub fn q1_0(block: &[u8; 18], out: &mut [f32; 128]) {
    let d = half::<0, 18>(block);
    for (out, &byte) in out.as_chunks_mut::<8>().0.iter_mut().zip(field::<2, 16, 18>(block)) {
        for (at, out) in out.iter_mut().enumerate() {
            *out = if byte >> at & 1 == 1 { d } else { -d };
        }
    }
}

/// `Q2_0`: scale, 64 times two bits; value = scale * (two bits - 1).
pub fn q2_0(block: &[u8; 18], out: &mut [f32; 64]) {
    let d = half::<0, 18>(block);
    for (out, &byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(field::<2, 16, 18>(block)) {
        for (at, out) in out.iter_mut().enumerate() {
            *out = d * (i32::from(byte >> (2 * at) & 3) - 1) as f32;
        }
    }
}
