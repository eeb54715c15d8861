//! GGUF files, version 2 and 3: metadata, then tensor descriptions, then aligned tensor data.

use crate::{ByteSource, Result, TensorInfo};

mod metadata;
mod reader;
mod strings;
mod writer;

pub use metadata::{Array, Metadata, Value};
pub use strings::Strings;
pub use writer::{GgufOptions, GgufWriter};

/// The first four bytes of every GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Where tensors begin is a multiple of this, unless [`ALIGNMENT_KEY`] says otherwise.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// The metadata key of a file's alignment.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// The metadata keys of a split file: which part this is, how many there are, how many tensors all parts have together.
pub const SPLIT_KEYS: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// The largest alignment that is believed: a reader must be able to pad to it.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// The most axes a tensor has.
const MAX_AXES: u32 = 4;

/// How deep arrays may lie in arrays.
const MAX_DEPTH: usize = 8;

/// The alignment that a metadata value asks for, where it is one.
fn alignment(value: &Value) -> Option<u64> {
    value.as_u64().filter(|alignment| alignment.is_power_of_two() && *alignment <= MAX_ALIGNMENT)
}

/// Value types by their number in the file.
mod value_type {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// A GGUF file's header.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufFile {
    /// 2 or 3; both are read the same way.
    pub version: u32,
    /// The metadata, in the file's order.
    pub metadata: Metadata,
    /// The tensors, in the file's order, as of source 0. Shapes are slowest axis first (the file has them the other way
    /// round) and otherwise as recorded: see [`TensorInfo::with_shape`].
    pub tensors: Vec<TensorInfo>,
    /// What tensors' offsets are multiples of.
    pub alignment: u64,
    /// Where in the file the tensors' data begins.
    pub data_start: u64,
}

impl GgufFile {
    /// Reads the header of `source`; data is not touched.
    ///
    /// The source is asked for growing prefixes, from a MiB up, until the header is complete.
    ///
    /// # Errors
    /// [`Error::Header`](crate::Error::Header) and [`Error::Tensor`](crate::Error::Tensor) where the file is malformed or
    /// truncated, and the source's own.
    pub async fn read(source: &dyn ByteSource) -> Result<Self> {
        reader::read(source).await
    }

    /// Which part of how many this is, where the file says that it is one of several: `(0, 3)`.
    pub fn split(&self) -> Option<(u64, u64)> {
        let [number, count, _] = SPLIT_KEYS;
        Some((self.metadata.get_u64(number)?, self.metadata.get_u64(count)?)).filter(|&(_, count)| count > 1)
    }
}
