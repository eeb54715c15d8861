//! How the fields of a group's 32 values are packed.
//!
//! Kernels unpack to words of four bytes. So a byte of a plane holds fields of values that are four apart, and a shift and
//! a mask give four values in order.

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

/// Low four bits: byte `j` holds value `j` below and value `j + 16` above.
pub(super) fn nibbles(values: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| values[j] & 15 | values[j + 16] << 4)
}

/// Low two bits: byte `b` of the first four holds values `b`, `4 + b`, `8 + b` and `12 + b` from the lowest bits up, byte
/// `b` of the others the same of the second half.
pub(super) fn pairs(values: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|at| {
        let from = 16 * (at / 4) + at % 4;
        (0..4).fold(0, |byte, k| byte | (values[from + 4 * k] & 3) << (2 * k))
    })
}

/// Lowest bit: bit `k` of byte `b` is value `4 k + b`.
pub(super) fn bits(values: &[u8; 32]) -> [u8; 4] {
    std::array::from_fn(|b| (0..8).fold(0, |byte, k| byte | (values[4 * k + b] & 1) << k))
}
