//! Values of one or two bits, and ternary ones.

use super::{
    Planes,
    fields::{self, field, parts, parts_mut},
};

/// Bits turned: set for -1.
pub(super) fn q1_0(row: &[u8], [bits, scales, ..]: Planes<'_>) {
    let out = parts_mut::<16>(bits).iter_mut().zip(parts_mut::<2>(scales));
    for (block, (bits, scale)) in parts::<18>(row).iter().zip(out) {
        *scale = *field::<0, 2, 18>(block);
        for (stored, out) in parts::<4>(field::<2, 16, 18>(block)).iter().zip(parts_mut::<4>(bits)) {
            *out = fields::bits_in_order(*stored).map(|eight| !eight);
        }
    }
}

/// Turns pairs of bits that are one more than the value into two's complement of the value, negated: 0 and 1 change
/// places, and so do 2 and 3.
fn negated(four: u8) -> u8 {
    four ^ 0x55
}

/// Negated values, scales apart.
pub(super) fn q2_0(row: &[u8], [pairs, scales, ..]: Planes<'_>) {
    let out = parts_mut::<16>(pairs).iter_mut().zip(parts_mut::<2>(scales));
    for (block, (pairs, scale)) in parts::<18>(row).iter().zip(out) {
        *scale = *field::<0, 2, 18>(block);
        for (stored, out) in parts::<4>(field::<2, 16, 18>(block)).iter().zip(parts_mut::<4>(pairs)) {
            *out = fields::pairs_in_order(*stored).map(negated);
        }
    }
}

/// Negated values, scales apart.
pub(super) fn tq2_0(row: &[u8], [pairs, scales, ..]: Planes<'_>) {
    let out = parts_mut::<64>(pairs).iter_mut().zip(parts_mut::<2>(scales));
    for (block, (pairs, scale)) in parts::<66>(row).iter().zip(out) {
        *scale = *field::<64, 2, 66>(block);
        let stored = parts::<32>(field::<0, 64, 66>(block));
        for (g, out) in parts_mut::<8>(pairs).iter_mut().enumerate() {
            *out = fields::pairs(&stored[g / 4], 2 * (g % 4)).map(negated);
        }
    }
}

/// Words of digits in base 3, ordered so that a group of values lies in few of them.
pub(super) fn tq1_0(row: &[u8], [words, scales, ..]: Planes<'_>) {
    let out = parts_mut::<52>(words).iter_mut().zip(parts_mut::<2>(scales));
    for (block, (words, scale)) in parts::<54>(row).iter().zip(out) {
        *scale = *field::<52, 2, 54>(block);
        let mut digits = [0; 256];
        let (first, rest) = digits.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        read_digits(field::<0, 32, 54>(block), first);
        read_digits(field::<32, 16, 54>(block), second);
        read_digits(field::<48, 4, 54>(block), third);
        for (at, byte) in words.iter_mut().enumerate() {
            // Digit n of word j's byte is value 4 (5 j + n) + byte; the last word has four digits.
            let digit = |n: usize| digits.get(4 * (5 * (at / 4) + n) + at % 4).copied().unwrap_or(0);
            let number = (0..5).fold(0, |number, n| 3 * number + u32::from(digit(n)));
            // The fraction that it is of 3^5, rounded up: digits come out of it as they went in.
            *byte = (number * 256).div_ceil(243) as u8;
        }
    }
}

/// Digit after digit of all `bytes`, as [`selkie_formats`] reads them.
fn read_digits<const LEN: usize>(bytes: &[u8; LEN], out: &mut [u8]) {
    let mut rest = *bytes;
    for out in parts_mut::<LEN>(out) {
        for (out, rest) in out.iter_mut().zip(&mut rest) {
            *out = ((u16::from(*rest) * 3) >> 8) as u8;
            *rest = rest.wrapping_mul(3);
        }
    }
}
