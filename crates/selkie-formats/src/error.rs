//! What can be wrong with a file.

use std::ops::Range;

/// The result of reading or writing a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file could not be read or written. Each variant names the file, and the offset or the tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A range reaches past the end of its source.
    #[error("{file}: bytes {}..{} asked for, but the file ends at {len}", range.start, range.end)]
    PastEnd {
        /// The source's name.
        file: String,
        /// What was asked for.
        range: Range<u64>,
        /// The source's length in bytes.
        len: u64,
    },
    /// The header says something impossible.
    #[error("{file}: at byte {offset}: {what}")]
    Header {
        /// The source's name.
        file: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong, with the value found.
        what: String,
    },
    /// A tensor's description is impossible.
    #[error("{file}: tensor `{tensor}`: {what}")]
    Tensor {
        /// The source's name.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong, with the value found.
        what: String,
    },
    /// A metadata or configuration key is missing or holds something impossible.
    #[error("{file}: `{key}`: {what}")]
    Key {
        /// The source's name.
        file: String,
        /// The key.
        key: String,
        /// What is wrong, with the value found.
        what: String,
    },
    /// Reading the underlying file failed.
    #[error("{file}: {what}")]
    Read {
        /// The source's name.
        file: String,
        /// The system's words.
        what: String,
    },
    /// A file could not be written: the output failed, or what was to be written is impossible.
    #[error("writing: {what}")]
    Write {
        /// What is wrong.
        what: String,
    },
}
