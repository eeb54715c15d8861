//! Blocks of 32 values.

use super::{
    Planes,
    fields::{self, field, parts, parts_mut},
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

/// Nibbles as they are in the file; fifth bits turned: two's complement of what was 16 more. Scales apart.
pub(super) fn q5_0(row: &[u8], [nibbles, bits, scales, ..]: Planes<'_>) {
    let quants = parts_mut::<16>(nibbles).iter_mut().zip(parts_mut::<4>(bits));
    for (block, ((nibbles, bits), scale)) in parts::<22>(row).iter().zip(quants.zip(parts_mut::<2>(scales))) {
        *scale = *field::<0, 2, 22>(block);
        *bits = fields::bits_in_order(*field::<2, 4, 22>(block)).map(|eight| !eight);
        *nibbles = *field::<6, 16, 22>(block);
    }
}

/// Nibbles as they are in the file, fifth bits, scales and minima apart.
pub(super) fn q5_1(row: &[u8], [nibbles, bits, scales, ..]: Planes<'_>) {
    let quants = parts_mut::<16>(nibbles).iter_mut().zip(parts_mut::<4>(bits));
    for (block, ((nibbles, bits), scale)) in parts::<24>(row).iter().zip(quants.zip(parts_mut::<4>(scales))) {
        *scale = *field::<0, 4, 24>(block);
        *bits = fields::bits_in_order(*field::<4, 4, 24>(block));
        *nibbles = *field::<8, 16, 24>(block);
    }
}
