//! Row numbers of grids, signs and scales: mostly as they are in files, group by group.

use super::{
    Planes,
    fields::{field, parts, parts_mut},
};

/// Groups as they are in the file, the block's scale apart.
pub(super) fn iq2_xxs(row: &[u8], [words, halves, ..]: Planes<'_>) {
    let out = parts_mut::<64>(words).iter_mut().zip(parts_mut::<2>(halves));
    for (block, (words, half)) in parts::<66>(row).iter().zip(out) {
        *half = *field::<0, 2, 66>(block);
        *words = *field::<2, 64, 66>(block);
    }
}

/// Groups as they are in the file, scales apart.
pub(super) fn iq2_xs(row: &[u8], [words, scales, halves, ..]: Planes<'_>) {
    let out = parts_mut::<64>(words).iter_mut().zip(parts_mut::<8>(scales)).zip(parts_mut::<2>(halves));
    for (block, ((words, scales), half)) in parts::<74>(row).iter().zip(out) {
        *half = *field::<0, 2, 74>(block);
        *words = *field::<2, 64, 74>(block);
        *scales = *field::<66, 8, 74>(block);
    }
}

/// Row numbers and signs of a group side by side, and so upper bits and scales.
pub(super) fn iq2_s(row: &[u8], [words, packed, halves, ..]: Planes<'_>) {
    let out = parts_mut::<64>(words).iter_mut().zip(parts_mut::<16>(packed)).zip(parts_mut::<2>(halves));
    for (block, ((words, packed), half)) in parts::<82>(row).iter().zip(out) {
        *half = *field::<0, 2, 82>(block);
        let (low, signs) = (field::<2, 32, 82>(block), field::<34, 32, 82>(block));
        interleave::<4>(low, signs, words);
        interleave::<1>(field::<66, 8, 82>(block), field::<74, 8, 82>(block), packed);
    }
}

/// Row numbers and signs of a group side by side.
pub(super) fn iq3_xxs(row: &[u8], [words, halves, ..]: Planes<'_>) {
    let out = parts_mut::<96>(words).iter_mut().zip(parts_mut::<2>(halves));
    for (block, (words, half)) in parts::<98>(row).iter().zip(out) {
        *half = *field::<0, 2, 98>(block);
        eight_and_four(field::<2, 64, 98>(block), field::<66, 32, 98>(block), words);
    }
}

/// Row numbers and signs of a group side by side, the rest as it is in the file.
pub(super) fn iq3_s(row: &[u8], [words, ninth, scales, halves, ..]: Planes<'_>) {
    let quants = parts_mut::<96>(words).iter_mut().zip(parts_mut::<8>(ninth));
    let out = quants.zip(parts_mut::<4>(scales)).zip(parts_mut::<2>(halves));
    for (block, (((words, ninth), scales), half)) in parts::<110>(row).iter().zip(out) {
        *half = *field::<0, 2, 110>(block);
        eight_and_four(field::<2, 64, 110>(block), field::<74, 32, 110>(block), words);
        *ninth = *field::<66, 8, 110>(block);
        *scales = *field::<106, 4, 110>(block);
    }
}

/// Planes as in the file.
pub(super) fn iq1_s(row: &[u8], [low, packed, halves, ..]: Planes<'_>) {
    let out = parts_mut::<32>(low).iter_mut().zip(parts_mut::<16>(packed)).zip(parts_mut::<2>(halves));
    for (block, ((low, packed), half)) in parts::<50>(row).iter().zip(out) {
        *half = *field::<0, 2, 50>(block);
        *low = *field::<2, 32, 50>(block);
        *packed = *field::<34, 16, 50>(block);
    }
}

/// Planes as in the file; two scales of a group in a byte, the block's scale in one piece.
pub(super) fn iq1_m(row: &[u8], [low, packed, scales, halves, ..]: Planes<'_>) {
    let quants = parts_mut::<32>(low).iter_mut().zip(parts_mut::<16>(packed));
    let out = quants.zip(parts_mut::<8>(scales)).zip(parts_mut::<2>(halves));
    for (block, (((low, packed), scales), half)) in parts::<56>(row).iter().zip(out) {
        *low = *field::<0, 32, 56>(block);
        *packed = *field::<32, 16, 56>(block);
        let words = parts::<2>(field::<48, 8, 56>(block));
        let word = |at: usize| u16::from_le_bytes(words[at]);
        for (g, scales) in scales.iter_mut().enumerate() {
            *scales = (word(g / 2) >> (6 * (g % 2)) & 63) as u8;
        }
        *half = (0..4).fold(0, |d, at| d | (word(at) >> 12) << (4 * at)).to_le_bytes();
    }
}

/// `LEN` bytes of `a`, `LEN` bytes of `b`, and so on.
fn interleave<const LEN: usize>(a: &[u8], b: &[u8], out: &mut [u8]) {
    for ((a, b), out) in parts::<LEN>(a).iter().zip(parts::<LEN>(b)).zip(out.chunks_exact_mut(2 * LEN)) {
        out[..LEN].copy_from_slice(a);
        out[LEN..].copy_from_slice(b);
    }
}

/// Eight bytes of `a`, four of `b`, and so on.
fn eight_and_four(a: &[u8; 64], b: &[u8; 32], out: &mut [u8; 96]) {
    for ((a, b), out) in parts::<8>(a).iter().zip(parts::<4>(b)).zip(parts_mut::<12>(out)) {
        out[..8].copy_from_slice(a);
        out[8..].copy_from_slice(b);
    }
}
