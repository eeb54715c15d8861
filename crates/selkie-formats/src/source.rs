//! Where bytes come from: ranges of something long, read asynchronously.

use std::{future::Future, ops::Range, pin::Pin};

use bytes::Bytes;

use crate::{Error, Result};

/// A future that need not be [`Send`]: a browser has one thread and its promises stay on it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Something of known length that is read in ranges.
///
/// Weights never arrive as one slice, since a browser has none that long. A mapped file answers with a slice of the
/// mapping (no copy), a web source with the bytes it fetched.
pub trait ByteSource {
    /// What errors call this source: a path or an address.
    fn name(&self) -> &str;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of `range`; an error where it reaches past [`len`](Self::len) or reading fails.
    fn read(&self, range: Range<u64>) -> LocalFuture<'_, Result<Bytes>>;
}

/// Bytes that are in memory already; a mapped file is one too (`Bytes::from_owner`).
pub struct MemorySource {
    name: String,
    bytes: Bytes,
}

impl MemorySource {
    /// A source over `bytes`, called `name` in errors.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

impl ByteSource for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> LocalFuture<'_, Result<Bytes>> {
        let read = if range.start <= range.end && range.end <= self.len() {
            Ok(self.bytes.slice(range.start as usize..range.end as usize))
        } else {
            Err(Error::PastEnd { file: self.name.clone(), range, len: self.len() })
        };
        Box::pin(std::future::ready(read))
    }
}
