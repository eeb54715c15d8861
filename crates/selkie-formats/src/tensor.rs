//! A tensor: where it lies in a file, and its bytes once read.

use std::ops::Range;

use bytes::Bytes;

use crate::DType;

/// A tensor as a file's header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// How its values are stored.
    pub dtype: DType,
    /// Sizes, slowest axis first (`[out, in]` for a matrix), whatever order the format writes them in.
    pub shape: Vec<usize>,
    /// Which of the checkpoint's sources (shards) holds it.
    pub source: usize,
    /// Its bytes, counted from the start of that source.
    pub range: Range<u64>,
}

/// A tensor's bytes with what they mean. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// How the values are stored.
    pub dtype: DType,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// The stored values, row after row; may lie at any alignment.
    pub bytes: Bytes,
}
