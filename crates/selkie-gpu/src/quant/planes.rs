//! Numbers of four bits that stand for others: their bits lie apart on the device, and the numbers are others than in
//! files, chosen so that logic on whole words makes values of them (`fp4.wgsl`, `iq4.wgsl`).

use super::{
    Planes,
    fields::{self, field, parts, parts_mut},
};

/// Two numbers of `MXFP4` or `NVFP4` as they are on the device; 8 is a zero, as is 0.
static FP4: [u8; 256] = twice(&[0, 1, 2, 3, 4, 6, 5, 7, 0, 15, 14, 13, 12, 10, 8, 11]);

/// Two numbers of `IQ4_NL` or `IQ4_XS` as they are on the device.
static IQ4: [u8; 256] = twice(&[4, 6, 9, 1, 8, 0, 5, 7, 12, 3, 15, 2, 10, 13, 14, 11]);

/// The table for two nibbles in a byte.
const fn twice(codes: &[u8; 16]) -> [u8; 256] {
    let mut out = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        out[byte] = codes[byte & 15] | codes[byte >> 4] << 4;
        byte += 1;
    }
    out
}

/// The bits of 32 numbers, a word for each of the four; byte `j` of 16 holds number `j` below, number `j + 16` above.
fn planes(qs: &[u8; 16], codes: &[u8; 256]) -> [u8; 16] {
    let codes = qs.map(|q| codes[usize::from(q)]);
    let mut out = [0; 16];
    for (bit, out) in parts_mut::<4>(&mut out).iter_mut().enumerate() {
        *out = fields::bits_of_nibbles(&codes, bit);
    }
    out
}

/// Bits apart, exponents apart.
pub(super) fn mxfp4(row: &[u8], [bits, exponents, ..]: Planes<'_>) {
    for (block, (bits, exponent)) in parts::<17>(row).iter().zip(parts_mut::<16>(bits).iter_mut().zip(exponents)) {
        *exponent = block[0];
        *bits = planes(field::<1, 16, 17>(block), &FP4);
    }
}

/// Bits apart; scales that are no numbers are 0.
pub(super) fn nvfp4(row: &[u8], [bits, scales, ..]: Planes<'_>) {
    let out = parts_mut::<32>(bits).iter_mut().zip(parts_mut::<4>(scales));
    for (block, (bits, scales)) in parts::<36>(row).iter().zip(out) {
        *scales = field::<0, 4, 36>(block).map(|scale| if scale == 0x7f { 0 } else { scale & 0x7f });
        for (qs, out) in parts::<16>(field::<4, 32, 36>(block)).iter().zip(parts_mut::<16>(bits)) {
            // Values 0..8 and 8..16 share bytes here.
            let q = |i: usize| qs[8 * (i / 16) + i % 8] >> (4 * (i / 8 % 2)) & 15;
            *out = planes(&std::array::from_fn(|j| q(j) | q(j + 16) << 4), &FP4);
        }
    }
}

/// Bits apart, scales apart.
pub(super) fn iq4_nl(row: &[u8], [bits, scales, ..]: Planes<'_>) {
    let out = parts_mut::<16>(bits).iter_mut().zip(parts_mut::<2>(scales));
    for (block, (bits, scale)) in parts::<18>(row).iter().zip(out) {
        *scale = *field::<0, 2, 18>(block);
        *bits = planes(field::<2, 16, 18>(block), &IQ4);
    }
}

/// Bits apart; scales as signed bytes.
pub(super) fn iq4_xs(row: &[u8], [bits, scales, halves, ..]: Planes<'_>) {
    let out = parts_mut::<128>(bits).iter_mut().zip(parts_mut::<8>(scales)).zip(parts_mut::<2>(halves));
    for (block, ((bits, scales), half)) in parts::<136>(row).iter().zip(out) {
        *half = *field::<0, 2, 136>(block);
        let high = u16::from_le_bytes(*field::<2, 2, 136>(block));
        let low = field::<4, 4, 136>(block);
        for (g, scale) in scales.iter_mut().enumerate() {
            let six = low[g / 2] >> (4 * (g % 2)) & 15 | ((high >> (2 * g) & 3) as u8) << 4;
            *scale = six.wrapping_sub(32);
        }
        for (qs, out) in parts::<16>(field::<8, 128, 136>(block)).iter().zip(parts_mut::<16>(bits)) {
            *out = planes(qs, &IQ4);
        }
    }
}
