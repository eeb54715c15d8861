//! Token ids by text, where the texts are kept elsewhere.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A hash table of ids. Its methods are given the texts, so that they are stored once.
pub(crate) struct TextMap {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TextMap {
    /// A table with room for `tokens` ids.
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self { table: HashTable::with_capacity(tokens), hasher: DefaultHashBuilder::default() }
    }

    /// Adds `id` under its text. Of several ids with the same text the last one is found.
    pub(crate) fn insert<'a>(&mut self, id: u32, text: &[u8], text_of: impl Fn(u32) -> &'a [u8]) {
        let hash = |text: &[u8]| self.hasher.hash_one(text);
        self.table.entry(hash(text), |&other| text_of(other) == text, |&other| hash(text_of(other))).insert(id);
    }

    /// The id with this text.
    pub(crate) fn find<'a>(&self, text: &[u8], text_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        self.table.find(self.hasher.hash_one(text), |&id| text_of(id) == text).copied()
    }
}
