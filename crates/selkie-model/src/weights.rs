//! The weights of a model: which rows of which tensors they are, and their bytes once loaded.
//!
//! A family names its weights while it reads a header; no values are read then. A weight may be part of a stored tensor
//! (Phi-3 keeps q, k and v in one) or several tensors one after another (the experts of a mixture).

use std::ops::Range;

use selkie_formats::{Checkpoint, DType, Tensor, TensorInfo, quant};

use crate::{Error, Result, Stage, Watch};

/// Names a weight of one model: an index into its [`Weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// What is done to stored values as they are loaded. All but the first give f32, unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Transform {
    /// Nothing: the bytes stay as they are, quantised blocks too.
    #[default]
    None,
    /// Adds one: Gemma's safetensors store the norms' weights as offsets from one.
    AddOne,
    /// `-exp(v)`: what `A_log` means.
    NegExp,
    /// `-exp(v)` with `v` held within -10 and 5 (MBJS's Mamba-1).
    NegExpClamped,
    /// `-softplus(v)` (MBJS's Mamba-2).
    NegSoftplus,
    /// Each row from its end: taps of a convolution that meet the current token first (MBJS).
    ReverseRows,
    /// Rows of heads whose halves make pairs, so that neighbours do: GGUF's order of queries and keys. Types stay.
    PairRows {
        /// Rows of a head.
        head_dim: usize,
    },
    /// Row after row times its own factor: so many rows, each with its factor.
    ScaleRows(Vec<(usize, f32)>),
    /// Each matrix of a stack `[n, in, out]` as `[out, in]`; float types stay as they are, others become f32.
    Transpose,
    /// The same of matrices `[in, step · out]`, of which only every `step`-th column counts (gpt-oss: gate and up take turns).
    TransposeEvery {
        /// The first column.
        first: usize,
        /// To the next.
        step: usize,
    },
    /// Of rows `step` times as long, every `step`-th value.
    Every {
        /// The first value.
        first: usize,
        /// To the next.
        step: usize,
    },
    /// MXFP4 blocks as published models keep them, the nibbles of all blocks in one tensor of bytes and the exponents in a
    /// second, brought together as ggml's blocks; every `step`-th row. Gives [`DType::MXFP4`].
    Mxfp4 {
        /// The first row.
        first: usize,
        /// To the next.
        step: usize,
    },
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
        self.transform.dtype(self.parts[0].tensor.dtype)
    }

    /// The types of its rows once loaded, in order, each with how many there are.
    pub fn types(&self) -> Vec<(DType, usize)> {
        match self.transform {
            Transform::None => self.parts.iter().map(|p| (p.tensor.dtype, p.rows.len())).collect(),
            _ => vec![(self.dtype(), self.rows())],
        }
    }

    /// Bytes in memory once loaded.
    pub fn bytes(&self) -> u64 {
        let stored = |p: &Part| p.rows.len() as u64 * p.tensor.dtype.row_bytes(p.row_len).unwrap_or(0) as u64;
        match self.transform {
            Transform::None => self.parts.iter().map(stored).sum(),
            _ => self.rows() as u64 * self.dtype().row_bytes(self.row_len()).unwrap_or(0) as u64,
        }
    }
}

impl Weight {
    /// Reads its parts and makes it of them. Bytes of a mapped file are not copied.
    ///
    /// # Errors
    /// Where reading fails, or a transformed weight has a type without a decoder.
    pub async fn load(&self, checkpoint: &Checkpoint) -> Result<LoadedWeight> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            parts.push(read_part(checkpoint, part).await?);
        }
        let mut loaded = LoadedWeight { name: self.name.clone(), shape: self.shape.clone(), parts };
        self.transform.apply(&mut loaded)?;
        Ok(loaded)
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
        self.load_watched(checkpoint, &Watch::default()).await
    }

    /// As [`load`](Self::load); `watch` hears of each weight, and may end it.
    ///
    /// # Errors
    /// As there, and [`Error::Cancelled`].
    pub async fn load_watched(&self, checkpoint: &Checkpoint, watch: &Watch) -> Result<LoadedWeights> {
        let total = self.entries.iter().map(Weight::bytes).sum();
        let mut done = 0;
        let mut entries = Vec::with_capacity(self.entries.len());
        for weight in &self.entries {
            entries.push(weight.load(checkpoint).await?);
            done += weight.bytes();
            watch.tell(Stage::Load, done, total)?;
        }
        Ok(LoadedWeights { entries })
    }
}

impl Transform {
    /// The type that comes out, of a stored type.
    fn dtype(&self, stored: DType) -> DType {
        match (self, stored) {
            (Transform::None | Transform::PairRows { .. }, _)
            | (Transform::Transpose | Transform::TransposeEvery { .. }, DType::F16 | DType::BF16) => stored,
            (Transform::Mxfp4 { .. }, _) => DType::MXFP4,
            _ => DType::F32,
        }
    }

    /// Changes a weight as it is loaded. Functions of values are computed in f64 and rounded once.
    fn apply(&self, weight: &mut LoadedWeight) -> Result<()> {
        let by_value = |weight: &LoadedWeight, f: &dyn Fn(f64) -> f64| -> Result<Vec<f32>> {
            Ok(weight.to_f32()?.iter().map(|&v| f(f64::from(v)) as f32).collect())
        };
        let row_len = weight.row_len();
        let values = match self {
            Transform::None => return Ok(()),
            Transform::AddOne => by_value(weight, &|v| v + 1.0)?,
            Transform::NegExp => by_value(weight, &|v| -v.exp())?,
            Transform::NegExpClamped => by_value(weight, &|v| -v.clamp(-10.0, 5.0).exp())?,
            Transform::NegSoftplus => by_value(weight, &|v| -(v.max(0.0) + (-v.abs()).exp().ln_1p()))?,
            Transform::ReverseRows => {
                let mut values = weight.to_f32()?;
                values.chunks_exact_mut(row_len).for_each(<[f32]>::reverse);
                values
            }
            Transform::ScaleRows(factors) => {
                let mut values = weight.to_f32()?;
                let each = factors.iter().flat_map(|&(rows, factor)| std::iter::repeat_n(factor, rows));
                for (row, factor) in values.chunks_exact_mut(row_len).zip(each) {
                    row.iter_mut().for_each(|v| *v *= factor);
                }
                values
            }
            Transform::PairRows { head_dim } => return pair_rows(weight, *head_dim),
            Transform::Transpose => return transpose(weight, 0, 1),
            &Transform::TransposeEvery { first, step } => return transpose(weight, first, step),
            &Transform::Every { first, step } => weight.to_f32()?.into_iter().skip(first).step_by(step).collect(),
            &Transform::Mxfp4 { first, step } => return join_mxfp4(weight, first, step),
        };
        weight.parts = vec![f32_tensor(values, weight.shape.clone())];
        Ok(())
    }
}

/// Row `half · head_dim / 2 + i` of each head comes to `2 i + half`.
fn pair_rows(weight: &mut LoadedWeight, head_dim: usize) -> Result<()> {
    let rows = weight.shape[0];
    let stored: Vec<u8> = weight.parts.iter().flat_map(|part| part.bytes.iter().copied()).collect();
    let one_type = weight.parts.iter().all(|part| part.dtype == weight.parts[0].dtype);
    if head_dim == 0 || !rows.is_multiple_of(head_dim) || !head_dim.is_multiple_of(2) || !one_type {
        let what = format!("{rows} rows are no heads of {head_dim} in pairs");
        return Err(Error::Tensor { tensor: weight.name.clone(), what });
    }
    let row_bytes = stored.len() / rows.max(1);
    let mut bytes = Vec::with_capacity(stored.len());
    for head in stored.chunks_exact(head_dim * row_bytes) {
        let (first, second) = head.split_at(head.len() / 2);
        for (a, b) in first.chunks_exact(row_bytes).zip(second.chunks_exact(row_bytes)) {
            bytes.extend_from_slice(a);
            bytes.extend_from_slice(b);
        }
    }
    let (dtype, shape) = (weight.parts[0].dtype, weight.shape.clone());
    weight.parts = vec![Tensor { dtype, shape, bytes: bytes.into() }];
    Ok(())
}

/// Columns `first`, `first + step`, … of each stored matrix `[in, step · out]` become the rows of the `[out, in]` that
/// `weight.shape` says.
fn transpose(weight: &mut LoadedWeight, first: usize, step: usize) -> Result<()> {
    let &[n, out, input] = weight.shape.as_slice() else {
        return Err(Error::Tensor { tensor: weight.name.clone(), what: "is no stack of matrices".into() });
    };
    let stored_out = step * out;
    let at = |o: usize, i: usize| i * stored_out + step * o + first;
    let halves =
        weight.parts.iter().all(|p| p.dtype == weight.parts[0].dtype && matches!(p.dtype, DType::F16 | DType::BF16));
    if halves {
        let stored: Vec<u8> = weight.parts.iter().flat_map(|p| p.bytes.iter().copied()).collect();
        let mut bytes = Vec::with_capacity(2 * n * out * input);
        for matrix in stored.chunks_exact(2 * input * stored_out) {
            for (o, i) in (0..out).flat_map(|o| (0..input).map(move |i| (o, i))) {
                bytes.extend_from_slice(&matrix[2 * at(o, i)..][..2]);
            }
        }
        let dtype = weight.parts[0].dtype;
        weight.parts = vec![Tensor { dtype, shape: vec![n * out, input], bytes: bytes.into() }];
        return Ok(());
    }
    let stored = weight.to_f32()?;
    let mut values = Vec::with_capacity(n * out * input);
    for matrix in stored.chunks_exact(input * stored_out) {
        values.extend((0..out).flat_map(|o| (0..input).map(move |i| matrix[at(o, i)])));
    }
    weight.parts = vec![f32_tensor(values, vec![n * out, input])];
    Ok(())
}

/// Blocks of 16 bytes (value `2j` in the low nibble of byte `j`, `2j + 1` in the high one) and their exponents as ggml's: the
/// exponent first, then value `j` in the low nibble of byte `j`, `j + 16` in the high one.
fn join_mxfp4(weight: &mut LoadedWeight, first: usize, step: usize) -> Result<()> {
    let [blocks, scales] = weight.parts.as_slice() else {
        return Err(Error::Tensor { tensor: weight.name.clone(), what: "is no pair of blocks and scales".into() });
    };
    let (rows, row_len) = (weight.shape.iter().rev().skip(1).product(), weight.row_len());
    let per_row = row_len / 32;
    let mut bytes = Vec::with_capacity(rows * per_row * 17);
    let stored = blocks.bytes.chunks_exact(16 * per_row).zip(scales.bytes.chunks_exact(per_row));
    for (blocks, scales) in stored.skip(first).step_by(step) {
        for (block, &scale) in blocks.chunks_exact(16).zip(scales) {
            let value = |i: usize| block[i / 2] >> (4 * (i % 2)) & 15;
            bytes.push(scale);
            bytes.extend((0..16).map(|j| value(j) | value(j + 16) << 4));
        }
    }
    weight.parts = vec![Tensor { dtype: DType::MXFP4, shape: vec![rows, row_len], bytes: bytes.into() }];
    Ok(())
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

    /// Every value of the parts as f32: for norms, biases and other small things.
    ///
    /// # Errors
    /// Where a part's type has no decoder.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut values = vec![0.0; self.parts.iter().map(Tensor::elements).sum()];
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
    pub fn row_f32(&self, row: usize, out: &mut [f32]) -> Result<()> {
        let (dtype, bytes) = self.row(row)?;
        self.decode(dtype, bytes, out)
    }

    /// The stored bytes of row `row`, and their type.
    ///
    /// # Errors
    /// Where there is no such row.
    pub fn row(&self, row: usize) -> Result<(DType, &[u8])> {
        let mut at = row;
        for part in &self.parts {
            let rows = part.shape[0];
            if at < rows {
                let row_bytes = part.bytes.len() / rows;
                return Ok((part.dtype, &part.bytes[at * row_bytes..(at + 1) * row_bytes]));
            }
            at -= rows;
        }
        Err(Error::Tensor { tensor: self.name.clone(), what: format!("there is no row {row}") })
    }

    /// Some of its rows; bytes are shared.
    fn slice(&self, rows: Range<usize>) -> LoadedWeight {
        let mut parts = vec![];
        let mut start = 0;
        for part in &self.parts {
            let within = overlap(start..start + part.shape[0], &rows);
            if !within.is_empty() {
                let row_bytes = part.bytes.len() / part.shape[0];
                let bytes = part.bytes.slice((within.start - start) * row_bytes..(within.end - start) * row_bytes);
                parts.push(Tensor { dtype: part.dtype, shape: vec![within.len(), self.row_len()], bytes });
            }
            start += part.shape[0];
        }
        LoadedWeight { name: self.name.clone(), shape: vec![rows.len(), self.row_len()], parts }
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

/// Where an executor takes weights from.
#[derive(Clone)]
pub enum WeightSource<'a> {
    /// All of them are in memory, or mapped.
    Loaded(LoadedWeights),
    /// They are read as they are needed, and need not stay: more than memory holds, or not there yet.
    Stored(&'a Checkpoint),
}

impl From<LoadedWeights> for WeightSource<'_> {
    fn from(loaded: LoadedWeights) -> Self {
        WeightSource::Loaded(loaded)
    }
}

impl WeightSource<'_> {
    /// The types of a weight's rows, in order, each with how many there are.
    pub fn types(&self, weights: &Weights, id: WeightId) -> Vec<(DType, usize)> {
        let weight = weights.get(id);
        match self {
            WeightSource::Loaded(loaded) => loaded.get(id).parts.iter().map(|p| (p.dtype, p.shape[0])).collect(),
            WeightSource::Stored(_) => weight.types(),
        }
    }

    /// A weight, whole.
    ///
    /// # Errors
    /// As [`Weight::load`].
    pub async fn load(&self, weights: &Weights, id: WeightId) -> Result<LoadedWeight> {
        match self {
            WeightSource::Loaded(loaded) => Ok(loaded.get(id).clone()),
            WeightSource::Stored(checkpoint) => weights.get(id).load(checkpoint).await,
        }
    }

    /// Some rows of a weight, all axes but the last taken together. What is transformed on the way in is read whole.
    ///
    /// # Errors
    /// As [`Weight::load`].
    pub async fn rows(&self, weights: &Weights, id: WeightId, rows: Range<usize>) -> Result<LoadedWeight> {
        let weight = weights.get(id);
        let WeightSource::Stored(checkpoint) = self else { return Ok(self.load(weights, id).await?.slice(rows)) };
        if weight.transform != Transform::None {
            return Ok(weight.load(checkpoint).await?.slice(rows));
        }
        let mut parts = vec![];
        let mut start = 0;
        for part in &weight.parts {
            let within = overlap(start..start + part.rows.len(), &rows);
            if !within.is_empty() {
                let first = part.rows.start + within.start - start;
                let some = Part { rows: first..first + within.len(), ..part.clone() };
                parts.push(read_part(checkpoint, &some).await?);
            }
            start += part.rows.len();
        }
        Ok(LoadedWeight { name: weight.name.clone(), shape: vec![rows.len(), weight.row_len()], parts })
    }

    /// Only these weights; the others are there without their bytes.
    ///
    /// # Errors
    /// As [`Weight::load`].
    pub async fn only(&self, weights: &Weights, ids: &[WeightId]) -> Result<LoadedWeights> {
        let mut entries = vec![];
        for (id, weight) in weights.iter() {
            entries.push(match ids.contains(&id) {
                true => self.load(weights, id).await?,
                false => LoadedWeight { name: weight.name.clone(), shape: weight.shape.clone(), parts: vec![] },
            });
        }
        Ok(LoadedWeights { entries })
    }
}

/// The part of `rows` that lies in `of`.
fn overlap(of: Range<usize>, rows: &Range<usize>) -> Range<usize> {
    let start = rows.start.max(of.start);
    start..rows.end.min(of.end).max(start)
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
