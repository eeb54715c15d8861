//! Blocks of 32 values.

use super::{
    Planes,
    fields::{parts, parts_mut},
};

/// Nibbles as they are in the file, with their upper bits turned: two's complement of what was 8 more. Scales apart.
pub(super) fn q4_0(row: &[u8], [nibbles, scales, ..]: Planes<'_>) {
    let out = parts_mut::<16>(nibbles).iter_mut().zip(parts_mut::<2>(scales));
    for ([d0, d1, qs @ ..], (nibbles, scale)) in parts::<18>(row).iter().zip(out) {
        *scale = [*d0, *d1];
        *nibbles = qs.map(|q| q ^ 0x88);
    }
}

/// Nibbles as they are in the file, scales and minima apart.
pub(super) fn q4_1(row: &[u8], [nibbles, scales, ..]: Planes<'_>) {
    let out = parts_mut::<16>(nibbles).iter_mut().zip(parts_mut::<4>(scales));
    for ([d0, d1, m0, m1, qs @ ..], (nibbles, scale)) in parts::<20>(row).iter().zip(out) {
        *scale = [*d0, *d1, *m0, *m1];
        *nibbles = *qs;
    }
}

/// Bytes as they are in the file, scales apart.
pub(super) fn q8_0(row: &[u8], [bytes, scales, ..]: Planes<'_>) {
    let out = parts_mut::<32>(bytes).iter_mut().zip(parts_mut::<2>(scales));
    for ([d0, d1, qs @ ..], (bytes, scale)) in parts::<34>(row).iter().zip(out) {
        *scale = [*d0, *d1];
        *bytes = *qs;
    }
}
