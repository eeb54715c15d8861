//! Files mapped into memory.

#![allow(unsafe_code, reason = "mapping a file is the one thing here that the compiler cannot check")]

use std::{fs::File, ops::Range, path::Path};

use bytes::Bytes;
use selkie_formats::{ByteSource, LocalFuture, MemorySource};

use crate::{Error, Result};

/// A file mapped into memory: reading a range of it copies nothing, and pages come from disk as they are touched.
pub struct MappedFile(MemorySource);

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// Where it cannot be opened or mapped; a folder cannot.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let error = |what: String| Error::File { path: name.clone(), what };
        // Looked at before it is opened: opening a pipe waits for a writer.
        let metadata = std::fs::metadata(path).map_err(|e| error(e.to_string()))?;
        if !metadata.is_file() {
            return Err(error("is not a file".into()));
        }
        let file = File::open(path).map_err(|e| error(e.to_string()))?;
        let metadata = file.metadata().map_err(|e| error(e.to_string()))?;
        let bytes = if metadata.len() == 0 {
            Bytes::new()
        } else {
            // SAFETY: the map is read-only and private to this process. Another process may still write to or cut the
            // file; model files are moved into place whole and never written again, and every reader of the bytes
            // checks what it reads, so that changed bytes give wrong numbers but break no rule of the language.
            let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| error(e.to_string()))?;
            Bytes::from_owner(map)
        };
        Ok(Self(MemorySource::new(name, bytes)))
    }
}

impl ByteSource for MappedFile {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, range: Range<u64>) -> LocalFuture<'_, selkie_formats::Result<Bytes>> {
        self.0.read(range)
    }
}
