//! safetensors files: a JSON header, then the tensors' data without gaps.

use std::{collections::BTreeMap, ops::Range};

use crate::{ByteSource, DType, Error, Result, TensorInfo};

mod header;
mod index;
mod writer;

pub use index::ShardIndex;
pub use writer::SafetensorsWriter;

/// The longest header that is believed.
const MAX_HEADER: u64 = 256 << 20;

/// Names of types, in the file and here.
const TYPES: &[(&str, DType)] = &[
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("F64", DType::F64),
    ("I8", DType::I8),
    ("I16", DType::I16),
    ("I32", DType::I32),
    ("I64", DType::I64),
    ("U8", DType::U8),
    ("U16", DType::U16),
    ("U32", DType::U32),
    ("U64", DType::U64),
    ("BOOL", DType::BOOL),
    ("F8_E4M3", DType::F8_E4M3),
    ("F8_E5M2", DType::F8_E5M2),
    ("F8_E8M0", DType::F8_E8M0),
    ("C64", DType::C64),
];

/// A tensor whose type is not known here: it can be listed, not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTensor {
    /// Its name.
    pub name: String,
    /// The type's name in the file.
    pub dtype: String,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// Which of the checkpoint's sources (shards) holds it.
    pub source: usize,
    /// Its bytes, counted from the start of that source.
    pub range: Range<u64>,
}

/// A safetensors file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsFile {
    /// The free metadata, `__metadata__` in the file.
    pub metadata: BTreeMap<String, String>,
    /// The tensors, as of source 0, in the order of their data.
    pub tensors: Vec<TensorInfo>,
    /// Tensors of types that are not known here.
    pub unknown: Vec<UnknownTensor>,
}

impl SafetensorsFile {
    /// Reads the header of `source`; data is not touched.
    ///
    /// # Errors
    /// [`Error::Header`] and [`Error::Tensor`] where the file is malformed: a header longer than the file, JSON of another
    /// form, a name twice, offsets out of range, overlapping or with gaps between them, a shape of another size, bytes
    /// after the last tensor; and the source's own.
    pub async fn read(source: &dyn ByteSource) -> Result<Self> {
        let (file, len) = (source.name(), source.len());
        let error = |offset, what| Error::Header { file: file.to_owned(), offset, what };
        if len < 8 {
            return Err(error(0, format!("not a safetensors file: it has only {len} bytes")));
        }
        let size = source.read(0..8).await?;
        let size = size.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap_or_default();
        if size > len - 8 {
            return Err(error(0, format!("a header of {size} bytes, but the file has only {len}")));
        }
        if size > MAX_HEADER {
            return Err(error(0, format!("a header of {size} bytes; at most {MAX_HEADER} are taken")));
        }
        let bytes = source.read(8..8 + size).await?;
        header::parse(file, &bytes, 8 + size..len)
    }
}

fn type_from_name(name: &str) -> Option<DType> {
    TYPES.iter().find(|row| row.0 == name).map(|row| row.1)
}

fn type_name(dtype: DType) -> Option<&'static str> {
    TYPES.iter().find(|row| row.1 == dtype).map(|row| row.0)
}
