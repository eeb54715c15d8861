//! Weights as they lie in the file.

use bytes::Bytes;
use selkie_formats::{DType, Tensor};

use crate::{
    Isa,
    error::{Error, Result, expect},
    kernels::decode::decode_row,
};

/// Rows of one type that lie one after another.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) dtype: DType,
    pub(crate) rows: usize,
    pub(crate) row_bytes: usize,
    pub(crate) bytes: Bytes,
}

impl Part {
    /// Bytes of row `row`, from value `from` to value `to`: whole blocks of `block` values (and `block_bytes` bytes).
    #[inline(always)]
    pub(crate) fn piece(&self, (block, block_bytes): (usize, usize), row: usize, from: usize, to: usize) -> &[u8] {
        let at = |i: usize| row * self.row_bytes + i / block * block_bytes;
        &self.bytes[at(from)..at(to)]
    }
}

/// A weight `[outputs, inputs]`: its rows in the file's own encoding, possibly from several tensors one after another,
/// each with its own type. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Matrix {
    inputs: usize,
    outputs: usize,
    parts: Vec<Part>,
}

impl Matrix {
    /// A matrix whose rows of `inputs` values are those of the `parts`, joined along the outputs. The bytes may lie at
    /// any alignment, as those of a mapped file do.
    ///
    /// # Errors
    /// Where rows are not whole blocks, a part is not whole rows, or a type holds no weights.
    pub fn new(inputs: usize, parts: impl IntoIterator<Item = (DType, Bytes)>) -> Result<Self> {
        let mut outputs = 0;
        let parts = parts
            .into_iter()
            .map(|(dtype, bytes)| {
                let weights = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) || dtype.is_quantised();
                if !weights {
                    return Err(Error::DType(dtype));
                }
                let row_bytes = dtype.row_bytes(inputs).ok_or(Error::Row { columns: inputs, dtype })?;
                let rows = bytes.len().checked_div(row_bytes).unwrap_or(0);
                expect("weight", "bytes", rows * row_bytes, bytes.len())?;
                outputs += rows;
                Ok(Part { dtype, rows, row_bytes, bytes })
            })
            .collect::<Result<_>>()?;
        Ok(Self { inputs, outputs, parts })
    }

    /// The matrix that a tensor of shape `[outputs, inputs]` is; leading axes count as outputs.
    ///
    /// # Errors
    /// As [`new`](Self::new), and where the shape and the bytes differ.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let (inputs, leading) = tensor.shape.split_last().ok_or(Error::Parameter("a weight without axes"))?;
        let matrix = Self::new(*inputs, [(tensor.dtype, tensor.bytes.clone())])?;
        let wanted = leading.iter().try_fold(1usize, |n, &axis| n.checked_mul(axis));
        expect("weight", "rows", wanted.ok_or(Error::Parameter("a weight's shape overflows"))?, matrix.outputs)?;
        Ok(matrix)
    }

    /// Values in a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes of all rows as stored.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// The types of the parts.
    pub fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.parts.iter().map(|part| part.dtype)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Decodes row `row` (an embedding, say) into `out`, `[inputs]`.
    ///
    /// # Errors
    /// Where there is no such row, or `out` has another length.
    pub fn row(&self, isa: Isa, row: usize, out: &mut [f32]) -> Result<()> {
        expect("row", "values", self.inputs, out.len())?;
        let mut first = 0;
        for part in &self.parts {
            if row < first + part.rows {
                let start = (row - first) * part.row_bytes;
                decode_row(isa, part.dtype, &part.bytes[start..start + part.row_bytes], out);
                return Ok(());
            }
            first += part.rows;
        }
        Err(Error::Size { operand: "weight", unit: "rows", wanted: row.saturating_add(1), found: self.outputs })
    }
}
