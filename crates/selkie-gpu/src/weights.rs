//! What a program reads of a model's weights, and how it lies on the device.
//!
//! Matrices that are multiplied together lie together: rows of one after rows of the other, or in turns, in their stored
//! blocks. Where that is larger than a kernel may see, it is cut between rows.

use std::{collections::HashMap, ops::Range};

use selkie_formats::DType;
use selkie_model::{LoadedWeight, LoadedWeights, ModelSpec, WeightId};

use crate::{Error, Gpu, Limits, Result, gpu::Use, quant::Format, table::Bound};

/// Names a matrix of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixId(pub usize);

/// Names a vector of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VectorId(pub usize);

/// Some rows of a weight, all of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The weight.
    pub weight: WeightId,
    /// Its first row; all axes but the last are taken together.
    pub first: usize,
    /// Rows.
    pub rows: usize,
    /// Rows of zeros behind them.
    pub padding: usize,
}

impl Piece {
    /// Rows on the device.
    pub fn device_rows(&self) -> usize {
        self.rows + self.padding
    }
}

/// Matrices that lie together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixKey {
    /// The rows.
    pub pieces: Vec<Piece>,
    /// Whether the first rows of all pieces come first, then the second ones, and so on.
    pub in_turns: bool,
}

/// A matrix as kernels see it.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// What it is made of.
    pub key: MatrixKey,
    /// How its values are stored.
    pub format: Format,
    /// Rows, padding among them.
    pub rows: usize,
    /// Values in a row.
    pub cols: usize,
    /// Words of a row on the device.
    pub row_words: usize,
    /// The rows of each buffer.
    pub chunks: Vec<Range<usize>>,
}

impl Matrix {
    /// Its bytes on the device.
    pub fn bytes(&self) -> u64 {
        4 * self.rows as u64 * self.row_words as u64
    }
}

/// Small weights in f32, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorKey {
    /// Weights and how long each is, padding among it; none is all zeros.
    pub parts: Vec<(Option<WeightId>, usize)>,
    /// Whether the first values of all parts come first, then the second ones, and so on.
    pub in_turns: bool,
}

/// All that programs of one model read.
pub struct Needed<'a> {
    spec: &'a ModelSpec,
    loaded: Option<&'a LoadedWeights>,
    limits: Limits,
    matrices: Vec<Matrix>,
    by_key: HashMap<MatrixKey, MatrixId>,
    vectors: Vec<VectorKey>,
    by_vector: HashMap<VectorKey, VectorId>,
}

impl<'a> Needed<'a> {
    /// Nothing yet. Types are those of `loaded`, or of the header where nothing is loaded.
    pub fn new(spec: &'a ModelSpec, loaded: Option<&'a LoadedWeights>, limits: Limits) -> Self {
        let (matrices, vectors) = (vec![], vec![]);
        Self { spec, loaded, limits, matrices, by_key: HashMap::new(), vectors, by_vector: HashMap::new() }
    }

    /// Sizes of a weight, slowest axis first.
    pub fn shape(&self, id: WeightId) -> &[usize] {
        &self.spec.weights.get(id).shape
    }

    /// The rows of a weight in runs of one type.
    pub fn runs(&self, id: WeightId) -> Vec<(DType, Range<usize>)> {
        let parts: Vec<(DType, usize)> = match self.loaded {
            Some(loaded) => loaded.get(id).parts.iter().map(|p| (p.dtype, p.shape[0])).collect(),
            None => {
                let weight = self.spec.weights.get(id);
                let plain = weight.transform == selkie_model::weights::Transform::None;
                if plain {
                    weight.parts.iter().map(|p| (p.tensor.dtype, p.rows.len())).collect()
                } else {
                    vec![(weight.dtype(), weight.rows())]
                }
            }
        };
        let mut runs: Vec<(DType, Range<usize>)> = vec![];
        for (dtype, rows) in parts {
            let start = runs.last().map_or(0, |run| run.1.end);
            match runs.last_mut() {
                Some(run) if run.0 == dtype => run.1.end += rows,
                _ => runs.push((dtype, start..start + rows)),
            }
        }
        runs
    }

    /// The matrix of these pieces, which are all of one type and width. Chunks end at multiples of `unit` rows.
    ///
    /// # Errors
    /// Where the type has no decoder here, or a row alone is too large.
    pub fn matrix(&mut self, key: MatrixKey, dtype: DType, unit: usize) -> Result<MatrixId> {
        if let Some(&known) = self.by_key.get(&key) {
            return Ok(known);
        }
        let weight = self.spec.weights.get(key.pieces[0].weight);
        let format = Format::of(dtype)
            .ok_or_else(|| Error::Op { op: weight.name.clone(), what: format!("{dtype} has no decoder on the GPU") })?;
        let cols = weight.row_len();
        let rows = key.pieces.iter().map(Piece::device_rows).sum();
        let row_words = format.row_words(cols);
        let row_bytes = 4 * row_words as u64;
        let most = (self.limits.binding.min(self.limits.buffer) / row_bytes) as usize / unit * unit;
        if most == 0 {
            return Err(Error::Limit {
                what: format!("{unit} rows of {}", weight.name),
                wanted: unit as u64 * row_bytes,
                limit: self.limits.binding,
                device: "this device".into(),
                hint: String::new(),
            });
        }
        let chunks = (0..rows).step_by(most).map(|first| first..(first + most).min(rows)).collect();
        let id = MatrixId(self.matrices.len());
        self.matrices.push(Matrix { key: key.clone(), format, rows, cols, row_words, chunks });
        self.by_key.insert(key, id);
        Ok(id)
    }

    /// A matrix.
    pub fn get(&self, id: MatrixId) -> &Matrix {
        &self.matrices[id.0]
    }

    /// The vector of these parts.
    pub fn vector(&mut self, key: VectorKey) -> VectorId {
        let next = VectorId(self.vectors.len());
        let id = *self.by_vector.entry(key.clone()).or_insert(next);
        if id == next {
            self.vectors.push(key);
        }
        id
    }

    /// Bytes of all on the device.
    pub fn bytes(&self) -> u64 {
        let vectors = self.vectors.iter().flat_map(|key| &key.parts).map(|part| 4 * part.1 as u64);
        self.matrices.iter().map(Matrix::bytes).sum::<u64>() + vectors.sum::<u64>()
    }

    /// Puts all of it on the device.
    ///
    /// # Errors
    /// Where there is no room, or a weight's bytes are not what they should be.
    pub async fn upload(self, gpu: &Gpu, loaded: &LoadedWeights) -> Result<Resident> {
        let mut matrices = Vec::with_capacity(self.matrices.len());
        for matrix in &self.matrices {
            let name = &loaded.get(matrix.key.pieces[0].weight).name;
            let mut chunks = Vec::with_capacity(matrix.chunks.len());
            for rows in &matrix.chunks {
                let bytes = 4 * rows.len() as u64 * matrix.row_words as u64;
                let buffer = gpu.buffer(name, bytes, Use::Storage).await?;
                upload_rows(gpu, matrix, rows.clone(), loaded, buffer.raw())?;
                chunks.push(Bound { range: 0..bytes, buffer });
            }
            matrices.push(chunks);
        }
        let mut vectors = Vec::with_capacity(self.vectors.len());
        for key in &self.vectors {
            let values = vector(key, loaded)?;
            let buffer = gpu.buffer("vector", 4 * values.len() as u64, Use::Storage).await?;
            gpu.queue().write_buffer(buffer.raw(), 0, bytemuck::cast_slice(&values));
            vectors.push(Bound::all(&buffer));
        }
        let grids = if self.matrices.iter().any(|m| m.format.needs_grids()) {
            let words = crate::quant::grids();
            let buffer = gpu.buffer("grids", 4 * words.len() as u64, Use::Storage).await?;
            gpu.queue().write_buffer(buffer.raw(), 0, bytemuck::cast_slice(&words));
            Some(Bound::all(&buffer))
        } else {
            None
        };
        gpu.queue().submit([]);
        gpu.wait()?;
        Ok(Resident { matrices, vectors, grids })
    }
}

/// Weights on the device.
pub struct Resident {
    /// The chunks of each matrix.
    pub matrices: Vec<Vec<Bound>>,
    /// Each vector.
    pub vectors: Vec<Bound>,
    /// The grids, where a format needs them.
    pub grids: Option<Bound>,
}

/// Bytes that wait on the host at most before the device has taken them.
pub(crate) const UPLOAD_AT_ONCE: usize = 16 << 20;

fn upload_rows(
    gpu: &Gpu,
    matrix: &Matrix,
    rows: Range<usize>,
    loaded: &LoadedWeights,
    buffer: &wgpu::Buffer,
) -> Result<()> {
    let at_once = (UPLOAD_AT_ONCE / (4 * matrix.row_words)).max(1);
    let mut words = vec![];
    let mut first = rows.start;
    while first < rows.end {
        let n = at_once.min(rows.end - first);
        words.clear();
        words.resize(n * matrix.row_words, 0u32);
        for (row, out) in (first..first + n).zip(words.chunks_exact_mut(matrix.row_words)) {
            if let Some(bytes) = stored_row(&matrix.key, row, loaded)? {
                matrix.format.repack_row(bytes, matrix.cols, out);
            }
        }
        let offset = 4 * (first - rows.start) * matrix.row_words;
        gpu.queue().write_buffer(buffer, offset as u64, bytemuck::cast_slice(&words));
        gpu.queue().submit([]);
        gpu.wait()?;
        first += n;
    }
    Ok(())
}

/// The bytes of a device row as they are stored; none for padding.
fn stored_row<'a>(key: &MatrixKey, row: usize, loaded: &'a LoadedWeights) -> Result<Option<&'a [u8]>> {
    let (piece, within) = if key.in_turns {
        let n = key.pieces.len();
        (&key.pieces[row % n], row / n)
    } else {
        let mut start = 0;
        let mut found = (&key.pieces[0], row);
        for piece in &key.pieces {
            found = (piece, row - start);
            if found.1 < piece.device_rows() {
                break;
            }
            start += piece.device_rows();
        }
        found
    };
    if within >= piece.rows {
        return Ok(None);
    }
    let weight: &LoadedWeight = loaded.get(piece.weight);
    let mut at = piece.first + within;
    for part in &weight.parts {
        let rows = part.shape[0];
        if at < rows {
            let bytes = part.bytes.len() / rows;
            return Ok(Some(&part.bytes[at * bytes..(at + 1) * bytes]));
        }
        at -= rows;
    }
    Err(Error::Op { op: weight.name.clone(), what: format!("there is no row {}", piece.first + within) })
}

fn vector(key: &VectorKey, loaded: &LoadedWeights) -> Result<Vec<f32>> {
    let mut parts = Vec::with_capacity(key.parts.len());
    for &(id, len) in &key.parts {
        let mut values = match id {
            Some(id) => loaded.get(id).to_f32().map_err(|e| Error::Op { op: "load".into(), what: e.to_string() })?,
            None => vec![],
        };
        values.resize(len, 0.0);
        parts.push(values);
    }
    if !key.in_turns {
        return Ok(parts.concat());
    }
    Ok((0..parts[0].len()).flat_map(|i| parts.iter().map(move |part| part[i])).collect())
}
