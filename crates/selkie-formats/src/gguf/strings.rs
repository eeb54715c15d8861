//! An array of strings without a string each: a vocabulary has hundreds of thousands.

use bytes::{Bytes, BytesMut};

/// Bytes before each string: its length.
pub(super) const PREFIX: usize = 8;

/// An array of strings in one piece of memory, as the file stores it: each string after its length.
///
/// Read from a file, it is a slice of the file's header; nothing is copied.
#[derive(Clone, Default)]
pub struct Strings {
    arena: Bytes,
    /// Where each string ends in `arena`; the next begins [`PREFIX`] bytes on.
    ends: Vec<u32>,
}

impl Strings {
    /// From the file's own bytes; `ends` tells where each string ends, and the caller has checked that they are UTF-8.
    pub(super) fn from_parts(arena: Bytes, ends: Vec<u32>) -> Self {
        Self { arena, ends }
    }

    /// The strings as a file stores them, each after its length.
    pub(super) fn arena(&self) -> &Bytes {
        &self.arena
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let before = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        let end = *self.ends.get(index)?;
        std::str::from_utf8(self.arena.get(before as usize + PREFIX..end as usize)?).ok()
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

impl PartialEq for Strings {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends && self.arena == other.arena
    }
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    /// Gathers strings.
    ///
    /// # Panics
    /// Where they are 4 GiB or more together, which no reader takes either.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut arena = BytesMut::new();
        let mut ends = Vec::new();
        for string in strings {
            let string = string.as_ref();
            arena.extend_from_slice(&(string.len() as u64).to_le_bytes());
            arena.extend_from_slice(string.as_bytes());
            ends.push(u32::try_from(arena.len()).expect("an array of strings of 4 GiB"));
        }
        Self { arena: arena.freeze(), ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back() {
        let words = ["", "a", "né", "", "Ġthe"];
        let strings: Strings = words.iter().collect();
        assert_eq!(strings.len(), 5);
        assert!(strings.iter().eq(words));
        assert_eq!(strings.get(2), Some("né"));
        assert_eq!(strings.get(5), None);
        assert!(!strings.is_empty() && Strings::default().is_empty());
        assert_eq!(format!("{:?}", words[1..3].iter().collect::<Strings>()), r#"["a", "né"]"#);
    }
}
