//! The data part of a file that is being written: tensors one after another, aligned.

use std::{collections::HashSet, io::Write};

use crate::{Error, Result, TensorSpec};

/// Takes the tensors' bytes in order, in pieces of any size, and pads between them.
pub struct DataWriter<W: Write> {
    out: W,
    alignment: u64,
    /// Names and sizes, for the errors.
    tensors: Vec<(String, u64)>,
    /// The tensor that is being written.
    current: usize,
    /// Its bytes so far.
    written: u64,
}

impl<W: Write> DataWriter<W> {
    /// Nothing is written yet.
    ///
    /// # Errors
    /// Where a shape is impossible for its type, or two tensors have one name.
    pub fn new(out: W, alignment: u64, specs: &[TensorSpec]) -> Result<Self> {
        let mut names = HashSet::new();
        let mut tensors = Vec::with_capacity(specs.len());
        let mut end = 0u64;
        for spec in specs {
            let error = |what| Error::Write { what: format!("tensor `{}`: {what}", spec.name) };
            if !names.insert(&spec.name) {
                return Err(error("a second tensor of that name".to_owned()));
            }
            let bytes = spec.dtype.tensor_bytes(&spec.shape).map(|bytes| bytes as u64);
            let padded = bytes.and_then(|bytes| bytes.checked_next_multiple_of(alignment));
            let (Some(bytes), Some(next)) = (bytes, padded.and_then(|padded| end.checked_add(padded))) else {
                return Err(error(format!("shape {:?} is impossible for {}", spec.shape, spec.dtype)));
            };
            tensors.push((spec.name.clone(), bytes));
            end = next;
        }
        Ok(Self { out, alignment, tensors, current: 0, written: 0 })
    }

    /// Where each tensor begins, from the start of the data.
    pub fn offsets(&self) -> Vec<u64> {
        let mut next = 0;
        let starts = self.tensors.iter().map(|(_, bytes)| {
            let start = next;
            next += bytes.next_multiple_of(self.alignment);
            start
        });
        starts.collect()
    }

    /// Size of the data, padding included.
    pub fn size(&self) -> u64 {
        self.tensors.iter().map(|(_, bytes)| bytes.next_multiple_of(self.alignment)).sum()
    }

    /// The tensor that comes next, or is being written, and its bytes so far.
    pub fn current(&self) -> Option<(&str, u64)> {
        self.tensors.get(self.current).map(|(name, _)| (name.as_str(), self.written))
    }

    /// Bytes that the current tensor still takes; `None` where all are complete.
    pub fn room(&self) -> Option<usize> {
        let (_, size) = self.tensors.get(self.current)?;
        Some(usize::try_from(size - self.written).unwrap_or(usize::MAX))
    }

    /// Writes what comes before the data.
    pub fn header(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes)?;
        self.end_tensors()
    }

    /// Writes the next bytes of data.
    ///
    /// # Errors
    /// Where there are more than the tensors take, and where the output fails.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let Some(room) = self.room() else {
                return Err(Error::Write { what: format!("{} bytes more than the tensors take", bytes.len()) });
            };
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.put(now)?;
            self.written += now.len() as u64;
            self.end_tensors()?;
            bytes = later;
        }
        Ok(())
    }

    /// Ends the file and answers the output.
    ///
    /// # Errors
    /// Where bytes are missing, and where the output fails.
    pub fn finish(mut self) -> Result<W> {
        if let Some((name, size)) = self.tensors.get(self.current) {
            let what = format!("tensor `{name}`: only {} of {size} bytes were given", self.written);
            return Err(Error::Write { what });
        }
        self.out.flush().map_err(failed)?;
        Ok(self.out)
    }

    /// Pads and steps on while the current tensor is complete.
    fn end_tensors(&mut self) -> Result<()> {
        while let Some(&(_, size)) = self.tensors.get(self.current)
            && size == self.written
        {
            let padding = size.next_multiple_of(self.alignment) - size;
            std::io::copy(&mut std::io::Read::take(std::io::repeat(0), padding), &mut self.out).map_err(failed)?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failed)
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Write { what: error.to_string() }
}
