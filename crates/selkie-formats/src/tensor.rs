//! A tensor: where it lies in a file, and its bytes once read.

use std::ops::Range;

use bytes::Bytes;

use crate::{DType, QuantError, quant};

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

impl TensorInfo {
    /// Number of values; 1 for an empty shape.
    pub fn elements(&self) -> usize {
        // Readers have checked that this does not overflow.
        self.shape.iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// The same bytes under another shape: for a matrix whose two sizes a writer swapped, and for folding axes.
    ///
    /// `None` where that shape has another number of bytes, or rows which do not fill whole blocks.
    pub fn with_shape(&self, shape: &[usize]) -> Option<TensorInfo> {
        let bytes = self.dtype.tensor_bytes(shape)? as u64;
        (bytes == self.range.end - self.range.start).then(|| TensorInfo { shape: shape.to_vec(), ..self.clone() })
    }
}

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// How its values are stored.
    pub dtype: DType,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
}

impl From<&TensorInfo> for TensorSpec {
    fn from(info: &TensorInfo) -> Self {
        Self { name: info.name.clone(), dtype: info.dtype, shape: info.shape.clone() }
    }
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

impl Tensor {
    /// Number of values; 1 for an empty shape.
    pub fn elements(&self) -> usize {
        self.shape.iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// The values, decoded, row after row.
    ///
    /// # Errors
    /// Where the type holds no weights, or the bytes are not those of the shape.
    pub fn to_f32(&self) -> Result<Vec<f32>, QuantError> {
        if self.dtype.tensor_bytes(&self.shape) != Some(self.bytes.len()) {
            let (bytes, values) = (self.bytes.len(), self.elements());
            return Err(QuantError::Length { dtype: self.dtype, bytes, values });
        }
        let mut values = vec![0.0; self.elements()];
        quant::decode(self.dtype, &self.bytes, &mut values)?;
        Ok(values)
    }
}
