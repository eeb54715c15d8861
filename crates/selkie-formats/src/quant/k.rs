//! The K formats: 256 values in sub-blocks of 16 or 32 whose scales (and minima) are small integers, with one
//! half-precision scale over them.

use super::{field, half};

/// `Q2_K`: per 16 values a byte (scale below, minimum above), 2-bit values, scale, scale of the minima.
///
/// Each half of the block (128 values) has 32 bytes; byte `l` holds values `l`, `l + 32`, `l + 64` and `l + 96` from the
/// lowest bits up.
pub fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let scales: &[u8; 16] = field::<0, 16, 84>(block);
    let qs: &[u8; 64] = field::<16, 64, 84>(block);
    let (d, dmin) = (half::<80, 84>(block), half::<82, 84>(block));
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (dl, ml) = (d * f32::from(scales[sub] & 15), dmin * f32::from(scales[sub] >> 4));
        let (from, shift) = (32 * (sub / 8) + 16 * (sub % 2), 2 * (sub % 8 / 2));
        for (out, &q) in out.iter_mut().zip(&qs[from..from + 16]) {
            *out = dl * f32::from(q >> shift & 3) - ml;
        }
    }
}

/// `Q3_K`: third bits, 2-bit values (laid out as in `Q2_K`), 6-bit scales per 16 values, scale.
///
/// Third bits: bit `b` of byte `l` belongs to value `32 b + l`; where it is *not* set, 4 is taken off.
pub fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let third: &[u8; 32] = field::<0, 32, 110>(block);
    let qs: &[u8; 64] = field::<32, 64, 110>(block);
    let scales: &[u8; 12] = field::<96, 12, 110>(block);
    let d = half::<108, 110>(block);
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        // Four low bits in eight bytes, two high bits in four.
        let low = if sub < 8 { scales[sub] & 15 } else { scales[sub - 8] >> 4 };
        let high = scales[8 + sub % 4] >> (2 * (sub / 4)) & 3;
        let dl = d * (i32::from(low | high << 4) - 32) as f32;
        let lane = 16 * (sub % 2);
        let (from, shift) = (32 * (sub / 8) + lane, 2 * (sub % 8 / 2));
        let values = qs[from..from + 16].iter().zip(&third[lane..lane + 16]);
        for (out, (&q, &third)) in out.iter_mut().zip(values) {
            let third = third >> (sub / 2) & 1;
            *out = dl * (i32::from(q >> shift & 3 | third << 2) - 4) as f32;
        }
    }
}

/// `Q4_K`: scale, scale of the minima, 6-bit scales and minima per 32 values, nibbles.
///
/// Each 32 bytes of nibbles hold 64 values: the first 32 below, the next 32 above.
pub fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half::<0, 144>(block), half::<2, 144>(block));
    let scales: &[u8; 12] = field::<4, 12, 144>(block);
    let qs: &[u8; 128] = field::<16, 128, 144>(block);
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, sub);
        let (dl, ml) = (d * f32::from(scale), dmin * f32::from(min));
        let (from, shift) = (32 * (sub / 2), 4 * (sub % 2));
        for (out, &q) in out.iter_mut().zip(&qs[from..from + 32]) {
            *out = dl * f32::from(q >> shift & 15) - ml;
        }
    }
}

/// `Q5_K`: as `Q4_K`, with 32 bytes of fifth bits before the nibbles: bit `s` of byte `l` for value `l` of sub-block `s`.
pub fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (half::<0, 176>(block), half::<2, 176>(block));
    let scales: &[u8; 12] = field::<4, 12, 176>(block);
    let fifth: &[u8; 32] = field::<16, 32, 176>(block);
    let qs: &[u8; 128] = field::<48, 128, 176>(block);
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, sub);
        let (dl, ml) = (d * f32::from(scale), dmin * f32::from(min));
        let (from, shift) = (32 * (sub / 2), 4 * (sub % 2));
        for (out, (&q, &fifth)) in out.iter_mut().zip(qs[from..from + 32].iter().zip(fifth)) {
            *out = dl * f32::from(q >> shift & 15 | (fifth >> sub & 1) << 4) - ml;
        }
    }
}

/// `Q6_K`: low nibbles, upper two bits, signed 8-bit scales per 16 values, scale.
///
/// Each half of the block (128 values) has 64 bytes of nibbles (values 0..64 below, 64..128 above) and 32 bytes of upper
/// bits, laid out as in `Q2_K`.
pub fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let low: &[u8; 128] = field::<0, 128, 210>(block);
    let high: &[u8; 64] = field::<128, 64, 210>(block);
    let scales: &[u8; 16] = field::<192, 16, 210>(block);
    let d = half::<208, 210>(block);
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let dl = d * f32::from(scales[sub] as i8);
        let (part, at) = (sub / 8, sub % 8);
        let (low_from, low_shift) = (64 * part + 16 * (at % 4), 4 * (at / 4));
        let (high_from, high_shift) = (32 * part + 16 * (at % 2), 2 * (at / 2));
        let values = low[low_from..low_from + 16].iter().zip(&high[high_from..high_from + 16]);
        for (out, (&low, &high)) in out.iter_mut().zip(values) {
            let q = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
            *out = dl * (i32::from(q) - 32) as f32;
        }
    }
}

/// The 6-bit scale and minimum of sub-block `sub` (of 8) in `Q4_K` and `Q5_K`.
///
/// The first four pairs lie in the low six bits of bytes 0..4 and 4..8; the other four have their low nibbles in bytes
/// 8..12 and their high bits where the first four left room.
pub fn scale_and_min(scales: &[u8; 12], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (scales[sub] & 63, scales[sub + 4] & 63)
    } else {
        let low = scales[sub + 4];
        (low & 15 | (scales[sub - 4] >> 6) << 4, low >> 4 | (scales[sub] >> 6) << 4)
    }
}
