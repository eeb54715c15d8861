//! Blocks of 256 values with quantised scales.

use selkie_formats::quant::scale_and_min;

use super::{
    Planes,
    fields::{self, field, parts, parts_mut},
};

/// Scales and minima of `Q4_K` and `Q5_K`, a byte each, group by group.
fn k_scales(packed: &[u8; 12], out: &mut [u8; 16]) {
    for (g, out) in parts_mut::<2>(out).iter_mut().enumerate() {
        let (scale, min) = scale_and_min(packed, g);
        *out = [scale, min];
    }
}

/// The nibbles of two groups, which share bytes in the file.
fn k_nibbles(shared: &[u8; 32]) -> [[u8; 16]; 2] {
    [fields::nibbles(shared, 0), fields::nibbles(shared, 4)]
}

/// Nibbles in the order of `Q4_0`; scales and minima as bytes.
pub(super) fn q4_k(row: &[u8], [nibbles, scales, halves, ..]: Planes<'_>) {
    let out = parts_mut::<128>(nibbles).iter_mut().zip(parts_mut::<16>(scales)).zip(parts_mut::<4>(halves));
    for (block, ((nibbles, scales), halves)) in parts::<144>(row).iter().zip(out) {
        *halves = *field::<0, 4, 144>(block);
        k_scales(field::<4, 12, 144>(block), scales);
        for (shared, out) in parts::<32>(field::<16, 128, 144>(block)).iter().zip(parts_mut::<32>(nibbles)) {
            out.copy_from_slice(k_nibbles(shared).as_flattened());
        }
    }
}

/// As `Q4_K`; fifth bits group by group.
pub(super) fn q5_k(row: &[u8], [nibbles, bits, scales, halves, ..]: Planes<'_>) {
    let quants = parts_mut::<128>(nibbles).iter_mut().zip(parts_mut::<32>(bits));
    let out = quants.zip(parts_mut::<16>(scales)).zip(parts_mut::<4>(halves));
    for (block, (((nibbles, bits), scales), halves)) in parts::<176>(row).iter().zip(out) {
        *halves = *field::<0, 4, 176>(block);
        k_scales(field::<4, 12, 176>(block), scales);
        let fifth = field::<16, 32, 176>(block);
        for (shared, out) in parts::<32>(field::<48, 128, 176>(block)).iter().zip(parts_mut::<32>(nibbles)) {
            out.copy_from_slice(k_nibbles(shared).as_flattened());
        }
        for (g, out) in parts_mut::<4>(bits).iter_mut().enumerate() {
            *out = fields::bits(fifth, g);
        }
    }
}

/// Low nibbles, upper bits in pairs; the six bits are two's complement of what was 32 more.
pub(super) fn q6_k(row: &[u8], [nibbles, upper, scales, halves, ..]: Planes<'_>) {
    let quants = parts_mut::<128>(nibbles).iter_mut().zip(parts_mut::<64>(upper));
    let out = quants.zip(parts_mut::<16>(scales)).zip(parts_mut::<2>(halves));
    for (block, (((nibbles, upper), scales), halves)) in parts::<210>(row).iter().zip(out) {
        let low = parts::<32>(field::<0, 128, 210>(block));
        let high = parts::<32>(field::<128, 64, 210>(block));
        *scales = *field::<192, 16, 210>(block);
        *halves = *field::<208, 2, 210>(block);
        let out = parts_mut::<16>(nibbles).iter_mut().zip(parts_mut::<8>(upper));
        for (g, (nibbles, upper)) in out.enumerate() {
            let (part, at) = (g / 4, g % 4);
            let (low, high) = (&low[2 * part + at % 2], &high[part]);
            *nibbles = fields::nibbles(low, 4 * (at / 2));
            *upper = fields::pairs(high, 2 * at).map(|four| four ^ 0xaa);
        }
    }
}

/// Pairs of bits; scales and minima as they are in the file.
pub(super) fn q2_k(row: &[u8], [pairs, scales, halves, ..]: Planes<'_>) {
    let out = parts_mut::<64>(pairs).iter_mut().zip(parts_mut::<16>(scales)).zip(parts_mut::<4>(halves));
    for (block, ((pairs, scales), halves)) in parts::<84>(row).iter().zip(out) {
        *scales = *field::<0, 16, 84>(block);
        *halves = *field::<80, 4, 84>(block);
        let qs = parts::<32>(field::<16, 64, 84>(block));
        for (g, out) in parts_mut::<8>(pairs).iter_mut().enumerate() {
            *out = fields::pairs(&qs[g / 4], 2 * (g % 4));
        }
    }
}

/// Pairs of low bits, third bits turned: two's complement of what was 4 more; scales as signed bytes.
pub(super) fn q3_k(row: &[u8], [pairs, bits, scales, halves, ..]: Planes<'_>) {
    let quants = parts_mut::<64>(pairs).iter_mut().zip(parts_mut::<32>(bits));
    let out = quants.zip(parts_mut::<16>(scales)).zip(parts_mut::<2>(halves));
    for (block, (((pairs, bits), scales), halves)) in parts::<110>(row).iter().zip(out) {
        let (third, packed) = (field::<0, 32, 110>(block), field::<96, 12, 110>(block));
        let qs = parts::<32>(field::<32, 64, 110>(block));
        *halves = *field::<108, 2, 110>(block);
        for (sub, scale) in scales.iter_mut().enumerate() {
            let low = packed[sub % 8] >> (4 * (sub / 8)) & 15;
            let high = packed[8 + sub % 4] >> (2 * (sub / 4)) & 3;
            *scale = (low | high << 4).wrapping_sub(32);
        }
        for (g, (pairs, bits)) in parts_mut::<8>(pairs).iter_mut().zip(parts_mut::<4>(bits)).enumerate() {
            *pairs = fields::pairs(&qs[g / 4], 2 * (g % 4));
            *bits = fields::bits(third, g).map(|eight| !eight);
        }
    }
}
