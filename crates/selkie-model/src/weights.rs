//! The weights of a model: which rows of which tensors they are, and their bytes once loaded.
//!
//! A family names its weights while it reads a header; no values are read then. A weight may be part of a stored tensor
//! (Phi-3 keeps q, k and v in one) or several tensors one after another (the experts of a mixture).

use std::ops::Range;

use selkie_formats::{Checkpoint, DType, Tensor, TensorInfo, quant};

use crate::{Error, Result};

/// Names a weight of one model: an index into its [`Weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// What is done to stored values as they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transform {
    /// Nothing: the bytes stay as they are, quantised blocks too.
    #[default]
    None,
    /// Adds one: Gemma's safetensors store the norms' weights as offsets from one.
    AddOne,
}

/// Some rows of a stored tensor, its axes but the last taken together.
#[derive(Clone, Debug)]
pub struct Part {
    /// The tensor, with the shape that the model gives it.
    pub tensor: TensorInfo,
    /// Rows of it.
    pub rows: Range<usize>,
    /// Values in each: its last axis, or 1 where it is a list and single values are taken.
    pub row_len: usize,
}

/// A weight: rows of stored tensors, one after another.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The name in plans and messages: the first tensor's.
    pub name: String,
    /// Sizes, slowest axis first: `[out, in]`, `[n_experts, out, in]` or `[len]`.
    pub shape: Vec<usize>,
    /// Where its rows are.
    pub parts: Vec<Part>,
    /// What happens on the way in.
    pub transform: Transform,
}

impl Weight {
    /// Values in a row: the last axis.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    /// Rows, all axes but the last taken together.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// The stored type, or the first part's where parts differ.
    pub fn dtype(&self) -> DType {
        if self.transform != Transform::None { DType::F32 } else { self.parts[0].tensor.dtype }
    }

    /// Bytes in memory once loaded.
    pub fn bytes(&self) -> u64 {
        let stored = |p: &Part| p.rows.len() as u64 * p.tensor.dtype.row_bytes(p.row_len).unwrap_or(0) as u64;
        match self.transform {
            Transform::None => self.parts.iter().map(stored).sum(),
            Transform::AddOne => self.shape.iter().product::<usize>() as u64 * 4,
        }
    }
}

/// The table of a model's weights.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    entries: Vec<Weight>,
}

impl Weights {
    /// Adds a weight and names it.
    pub fn push(&mut self, weight: Weight) -> WeightId {
        self.entries.push(weight);
        WeightId(self.entries.len() as u32 - 1)
    }

    /// The weight of that name.
    pub fn get(&self, id: WeightId) -> &Weight {
        &self.entries[id.0 as usize]
    }

    /// All of them, in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (WeightId, &Weight)> {
        self.entries.iter().enumerate().map(|(i, w)| (WeightId(i as u32), w))
    }

    /// Reads every weight. Bytes of a mapped file are not copied.
    ///
    /// # Errors
    /// Where reading fails, or a transformed weight has a type without a decoder.
    pub async fn load(&self, checkpoint: &Checkpoint) -> Result<LoadedWeights> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for weight in &self.entries {
            let mut parts = Vec::with_capacity(weight.parts.len());
            for part in &weight.parts {
                parts.push(read_part(checkpoint, part).await?);
            }
            let mut loaded = LoadedWeight { name: weight.name.clone(), shape: weight.shape.clone(), parts };
            if weight.transform == Transform::AddOne {
                let values: Vec<f32> = loaded.to_f32()?.iter().map(|v| v + 1.0).collect();
                loaded.parts = vec![f32_tensor(values, weight.shape.clone())];
            }
            entries.push(loaded);
        }
        Ok(LoadedWeights { entries })
    }
}

async fn read_part(checkpoint: &Checkpoint, part: &Part) -> Result<Tensor> {
    let info = &part.tensor;
    let what = |what: String| Error::Tensor { tensor: info.name.clone(), what };
    let row_bytes = info
        .dtype
        .row_bytes(part.row_len)
        .ok_or_else(|| what(format!("rows of {} values do not fill {} blocks", part.row_len, info.dtype)))?
        as u64;
    let start = info.range.start + part.rows.start as u64 * row_bytes;
    let end = info.range.start + part.rows.end as u64 * row_bytes;
    if end > info.range.end {
        return Err(what(format!("rows {:?} reach past its end", part.rows)));
    }
    let rows = TensorInfo { shape: vec![part.rows.len(), part.row_len], range: start..end, ..info.clone() };
    Ok(checkpoint.read(&rows).await?)
}

/// A tensor that holds `values` as f32.
pub fn f32_tensor(values: Vec<f32>, shape: Vec<usize>) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { dtype: DType::F32, shape, bytes: bytes.into() }
}

/// A weight with its bytes: `[rows, row_len]` in parts, one after another.
#[derive(Clone, Debug)]
pub struct LoadedWeight {
    /// The name in plans and messages.
    pub name: String,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// The rows: each part `[rows, row_len]`, in its own stored type.
    pub parts: Vec<Tensor>,
}

impl LoadedWeight {
    /// Values in a row: the last axis.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    /// Every value as f32: for norms, biases and other small things.
    ///
    /// # Errors
    /// Where a part's type has no decoder.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.shape.iter().product()];
        let mut rest = values.as_mut_slice();
        for part in &self.parts {
            let (head, tail) = rest.split_at_mut(part.shape.iter().product());
            self.decode(part.dtype, &part.bytes, head)?;
            rest = tail;
        }
        Ok(values)
    }

    /// Decodes row `row` (all axes but the last taken together) into `out` `[row_len]`.
    ///
    /// # Errors
    /// Where there is no such row, or its type has no decoder.
    pub fn row_f32(&self, mut row: usize, out: &mut [f32]) -> Result<()> {
        for part in &self.parts {
            let rows = part.shape[0];
            if row < rows {
                let row_bytes = part.bytes.len() / rows;
                return self.decode(part.dtype, &part.bytes[row * row_bytes..(row + 1) * row_bytes], out);
            }
            row -= rows;
        }
        Err(Error::Tensor { tensor: self.name.clone(), what: format!("there is no row {row} past its end") })
    }

    fn decode(&self, dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        quant::decode(dtype, bytes, out)
            .map_err(|e| Error::Tensor { tensor: self.name.clone(), what: format!("{dtype}: {e}") })
    }
}

/// All weights of a model, loaded.
#[derive(Clone, Debug)]
pub struct LoadedWeights {
    entries: Vec<LoadedWeight>,
}

/// Weights made here rather than read, in order of their ids.
impl FromIterator<LoadedWeight> for LoadedWeights {
    fn from_iter<I: IntoIterator<Item = LoadedWeight>>(weights: I) -> Self {
        Self { entries: weights.into_iter().collect() }
    }
}

impl LoadedWeights {
    /// The weight of that name.
    pub fn get(&self, id: WeightId) -> &LoadedWeight {
        &self.entries[id.0 as usize]
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().flat_map(|w| &w.parts).map(|p| p.bytes.len() as u64).sum()
    }
}
