//! A hash over token ids that can be carried on.

use std::fmt;

use sha2::{Digest, Sha256};

/// A hash over the tokens of a sequence: a state that does not hold the ids themselves is known by it.
///
/// It is a chain, `h(0) = SHA-256("selkie tokens")` and `h(n) = SHA-256(h(n - 1), id n as 4 bytes, little-endian)`, so that
/// a sequence goes on where only the hash of its beginning is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl Default for TokenHash {
    /// The hash of no tokens.
    fn default() -> Self {
        Self(Sha256::digest(b"selkie tokens").into())
    }
}

impl TokenHash {
    /// The hash of `ids`.
    pub fn of(ids: &[u32]) -> Self {
        Self::default().then(ids)
    }

    /// The hash of the same tokens with `ids` after them.
    #[must_use]
    pub fn then(self, ids: &[u32]) -> Self {
        let next = |hash: Self, id: &u32| {
            let mut bytes = [0; 36];
            bytes[..32].copy_from_slice(&hash.0);
            bytes[32..].copy_from_slice(&id.to_le_bytes());
            Self(Sha256::digest(bytes).into())
        };
        ids.iter().fold(self, next)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let digits = hex.as_bytes();
        // `from_str_radix` would take a sign.
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_goes_on() {
        let whole = TokenHash::of(&[1, 2, 70_000]);
        assert_eq!(TokenHash::of(&[1]).then(&[2, 70_000]), whole);
        assert_ne!(TokenHash::of(&[2, 1, 70_000]), whole);
        assert_ne!(TokenHash::of(&[]), TokenHash::of(&[0]));
    }

    #[test]
    fn hashes_are_read_as_written() {
        let hash = TokenHash::of(&[3]);
        assert_eq!(TokenHash::parse(&hash.to_string()), Some(hash));
        for wrong in ["", "00", &"g".repeat(64), &format!("+{}", "0".repeat(63)), &"é".repeat(32)] {
            assert_eq!(TokenHash::parse(wrong), None, "{wrong}");
        }
    }

    /// Files depend on it. Computed apart from this program.
    #[test]
    fn the_hash_is_the_documented_one() {
        let known = "7a952a8afb63da8f0598bc60baa8b6f2945f5dc250662baa3b19f4a52e9a5df2";
        assert_eq!(TokenHash::of(&[1, 2, 70_000]).to_string(), known);
    }
}
