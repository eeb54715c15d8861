//! How the fields of a group's 32 values are packed.
//!
//! Kernels unpack to words of four bytes. So a byte of a plane holds fields of values that are four apart, and a shift
//! and a mask give four values in order.

/// Splits bytes into parts of `LEN`; what is left at the end fills no part.
pub(super) fn parts<const LEN: usize>(bytes: &[u8]) -> &[[u8; LEN]] {
    bytes.as_chunks().0
}

/// Splits bytes into parts of `LEN`; what is left at the end fills no part.
pub(super) fn parts_mut<const LEN: usize>(bytes: &mut [u8]) -> &mut [[u8; LEN]] {
    bytes.as_chunks_mut().0
}

/// The bytes `AT..AT + LEN` of a block; that they are inside is checked when compiled.
pub(super) fn field<const AT: usize, const LEN: usize, const BYTES: usize>(block: &[u8; BYTES]) -> &[u8; LEN] {
    const { assert!(AT + LEN <= BYTES) };
    match block[AT..].first_chunk() {
        Some(field) => field,
        None => unreachable!(),
    }
}

/// The little-endian words of `bytes`, `WORDS` of them.
fn words<const WORDS: usize>(bytes: &[u8]) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(parts::<4>(bytes)) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Four bits of 32 values, `shift` from the lowest: byte `j` holds value `j` below and value `j + 16` above.
pub(super) fn nibbles(values: &[u8; 32], shift: usize) -> [u8; 16] {
    let words: [u32; 8] = words(values);
    let mut out = [0; 16];
    for (k, out) in parts_mut::<4>(&mut out).iter_mut().enumerate() {
        *out = (words[k] >> shift & 0x0f0f_0f0f | (words[k + 4] >> shift & 0x0f0f_0f0f) << 4).to_le_bytes();
    }
    out
}

/// Two bits of 32 values, `shift` from the lowest: byte `b` of the first four holds values `b`, `4 + b`, `8 + b` and
/// `12 + b` from the lowest bits up, byte `b` of the others the same of the second half.
pub(super) fn pairs(values: &[u8; 32], shift: usize) -> [u8; 8] {
    let words: [u32; 8] = words(values);
    let mut out = [0; 8];
    for (words, out) in words.chunks_exact(4).zip(parts_mut::<4>(&mut out)) {
        *out = gather(words, |word| word >> shift & 0x0303_0303, 2).to_le_bytes();
    }
    out
}

/// One bit of 32 values, `shift` from the lowest: bit `k` of byte `b` is value `4 k + b`'s.
pub(super) fn bits(values: &[u8; 32], shift: usize) -> [u8; 4] {
    gather(&words::<8>(values), |word| word >> shift & 0x0101_0101, 1).to_le_bytes()
}

/// 32 bits in the order of their values, as [`bits`] packs them.
pub(super) fn bits_in_order(stored: [u8; 4]) -> [u8; 4] {
    let stored = u32::from_le_bytes(stored);
    // Multiplied so, bit `b` of four comes to byte `b`.
    let spread = |k: u32| ((stored >> (4 * k) & 15) * 0x0020_4081) & 0x0101_0101;
    (0..8).fold(0, |word, k| word | spread(k) << k).to_le_bytes()
}

/// 16 times two bits in the order of their values, as [`pairs`] packs them.
pub(super) fn pairs_in_order(stored: [u8; 4]) -> [u8; 4] {
    let spread = |byte: u32| (byte | byte << 6 | byte << 12 | byte << 18) & 0x0303_0303;
    (0..4).fold(0, |word, k| word | spread(stored[k].into()) << (2 * k)).to_le_bytes()
}

/// One bit of 32 nibbles, `shift` from the lowest, as [`bits`] packs it: byte `j` holds value `j` below, value `j +
/// 16` above.
pub(super) fn bits_of_nibbles(nibbles: &[u8; 16], shift: usize) -> [u8; 4] {
    let words: [u32; 4] = words(nibbles);
    let low = gather(&words, |word| word >> shift & 0x0101_0101, 1);
    let high = gather(&words, |word| word >> (shift + 4) & 0x0101_0101, 1);
    (low | high << 4).to_le_bytes()
}

/// What `field` makes of the words, each `step` bits above the one before.
fn gather(words: &[u32], field: impl Fn(u32) -> u32, step: usize) -> u32 {
    words.iter().enumerate().fold(0, |out, (k, &word)| out | field(word) << (step * k))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_kernels_look() {
        let values: [u8; 32] = std::array::from_fn(|i| (37 * i + 11) as u8);
        let field = |i: usize, shift: usize, mask: u8| values[i] >> shift & mask;
        let nibbles = nibbles(&values, 3);
        let (pairs, bits) = (pairs(&values, 5), bits(&values, 6));
        for (k, b) in (0..4).flat_map(|k| (0..4).map(move |b| (k, b))) {
            let i = 4 * k + b;
            assert_eq!((nibbles[i] & 15, nibbles[i] >> 4), (field(i, 3, 15), field(i + 16, 3, 15)));
            assert_eq!(pairs[b] >> (2 * k) & 3, field(i, 5, 3));
            assert_eq!(pairs[b + 4] >> (2 * k) & 3, field(i + 16, 5, 3));
            assert_eq!(bits[b] >> k & 1, field(i, 6, 1));
            assert_eq!(bits[b] >> (k + 4) & 1, field(i + 16, 6, 1));
        }
        let in_order = |bits: usize, from: usize, byte: usize| {
            (0..8 / bits).fold(0, |out, i| out | field(from + 8 / bits * byte + i, 0, (1 << bits) - 1) << (bits * i))
        };
        assert_eq!(bits_in_order(std::array::from_fn(|byte| in_order(1, 0, byte))), super::bits(&values, 0));
        let halves = [0, 16].map(|from| pairs_in_order(std::array::from_fn(|byte| in_order(2, from, byte))));
        assert_eq!(halves.as_flattened(), super::pairs(&values, 0));
        assert_eq!(bits_of_nibbles(&nibbles, 3), bits);
    }
}
