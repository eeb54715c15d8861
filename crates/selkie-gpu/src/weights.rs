//! What a program reads of a model's weights, and how it lies on the device.
//!
//! Matrices that are multiplied together lie together: rows of one after rows of the other, or in turns, in their stored
//! blocks. Where that is larger than a kernel may see, it is cut between rows.

use std::{collections::HashMap, ops::Range};

use selkie_formats::DType;
use selkie_model::{
    LoadedWeight, ModelSpec, Stage, Watch, WeightId,
    weights::{Transform, WeightSource},
};

use crate::{Buffer, Error, Gpu, Limits, Result, gpu::Use, quant::Format, table::Bound};

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

impl MatrixKey {
    /// The rows of piece `i` that lie within the device's `rows`, as far as they are no padding.
    fn within(&self, i: usize, rows: Range<usize>) -> Range<usize> {
        let piece = &self.pieces[i];
        let (start, end) = if self.in_turns {
            let n = self.pieces.len();
            let turn = |row: usize| row.saturating_sub(i).div_ceil(n);
            (turn(rows.start), turn(rows.end))
        } else {
            let first = self.device_row(i, 0);
            (rows.start.saturating_sub(first), rows.end.saturating_sub(first))
        };
        start.min(piece.rows)..end.min(piece.rows)
    }

    /// The device row of row `row` of piece `i`.
    fn device_row(&self, i: usize, row: usize) -> usize {
        match self.in_turns {
            true => row * self.pieces.len() + i,
            false => self.pieces[..i].iter().map(Piece::device_rows).sum::<usize>() + row,
        }
    }
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
    source: Option<&'a WeightSource<'a>>,
    limits: Limits,
    matrices: Vec<Matrix>,
    by_key: HashMap<MatrixKey, MatrixId>,
    vectors: Vec<VectorKey>,
    by_vector: HashMap<VectorKey, VectorId>,
}

impl<'a> Needed<'a> {
    /// Nothing yet. Types are those of `source`, or of the header where there is none.
    pub fn new(spec: &'a ModelSpec, source: Option<&'a WeightSource<'a>>, limits: Limits) -> Self {
        let (matrices, vectors) = (vec![], vec![]);
        Self { spec, source, limits, matrices, by_key: HashMap::new(), vectors, by_vector: HashMap::new() }
    }

    /// Sizes of a weight, slowest axis first.
    pub fn shape(&self, id: WeightId) -> &[usize] {
        &self.spec.weights.get(id).shape
    }

    /// The rows of a weight in runs of one type.
    pub fn runs(&self, id: WeightId) -> Vec<(DType, Range<usize>)> {
        let parts = match self.source {
            Some(source) => source.types(&self.spec.weights, id),
            None => self.spec.weights.get(id).types(),
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

    /// Puts all of it on the device, in the order in which the files hold it: of a download, each as soon as it is there.
    ///
    /// # Errors
    /// Where there is no room, a weight's bytes are not what they should be, or `watch` says to stop.
    pub async fn upload(self, gpu: &Gpu, source: &WeightSource<'_>, watch: &Watch) -> Result<Resident> {
        let mut matrices: Vec<Vec<Bound>> = self.matrices.iter().map(|_| vec![]).collect();
        let mut vectors: Vec<Option<Bound>> = self.vectors.iter().map(|_| None).collect();
        let mut upload = Upload { gpu, spec: self.spec, source, watch, done: 0, total: self.bytes(), waiting: 0 };
        for next in self.in_file_order() {
            match next {
                Next::Matrix(i) => matrices[i] = upload.matrix(&self.matrices[i]).await?,
                Next::Vector(i) => vectors[i] = Some(upload.vector(&self.vectors[i]).await?),
            }
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
        gpu.wait().await?;
        Ok(Resident { matrices, vectors: vectors.into_iter().flatten().collect(), grids })
    }

    /// Everything, by where in the files its last byte lies.
    fn in_file_order(&self) -> Vec<Next> {
        let end = |ids: &mut dyn Iterator<Item = WeightId>| {
            let parts = ids.flat_map(|id| &self.spec.weights.get(id).parts);
            parts.map(|part| (part.tensor.source, part.tensor.range.end)).max()
        };
        let matrices = self.matrices.iter().enumerate();
        let matrices = matrices.map(|(i, m)| (end(&mut m.key.pieces.iter().map(|p| p.weight)), Next::Matrix(i)));
        let vectors = self.vectors.iter().enumerate();
        let vectors = vectors.map(|(i, v)| (end(&mut v.parts.iter().filter_map(|p| p.0)), Next::Vector(i)));
        let mut all: Vec<_> = matrices.chain(vectors).collect();
        all.sort_by_key(|(end, _)| *end);
        all.into_iter().map(|(_, next)| next).collect()
    }
}

/// What is put on the device next.
enum Next {
    Matrix(usize),
    Vector(usize),
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

/// Weights on their way to the device.
struct Upload<'a> {
    gpu: &'a Gpu,
    spec: &'a ModelSpec,
    source: &'a WeightSource<'a>,
    watch: &'a Watch,
    /// Bytes that are there, and that will be.
    done: u64,
    total: u64,
    /// Bytes that the device may not have taken yet.
    waiting: usize,
}

impl Upload<'_> {
    async fn matrix(&mut self, matrix: &Matrix) -> Result<Vec<Bound>> {
        let name = &self.spec.weights.get(matrix.key.pieces[0].weight).name;
        // What is changed on the way in can only be read whole, and stays until the matrix is there.
        let mut whole: HashMap<WeightId, LoadedWeight> = HashMap::new();
        for piece in &matrix.key.pieces {
            if self.spec.weights.get(piece.weight).transform != Transform::None && !whole.contains_key(&piece.weight) {
                whole.insert(piece.weight, self.load(piece.weight).await?);
            }
        }
        let mut chunks = Vec::with_capacity(matrix.chunks.len());
        for rows in &matrix.chunks {
            let bytes = 4 * rows.len() as u64 * matrix.row_words as u64;
            let buffer = self.gpu.buffer(name, bytes, Use::Storage).await?;
            self.rows(matrix, rows.clone(), &whole, &buffer).await?;
            chunks.push(Bound { range: 0..bytes, buffer });
        }
        Ok(chunks)
    }

    async fn rows(
        &mut self,
        matrix: &Matrix,
        rows: Range<usize>,
        whole: &HashMap<WeightId, LoadedWeight>,
        buffer: &Buffer,
    ) -> Result<()> {
        let at_once = (UPLOAD_AT_ONCE / (4 * matrix.row_words)).max(1);
        let mut words = vec![];
        let mut first = rows.start;
        while first < rows.end {
            let n = at_once.min(rows.end - first);
            words.clear();
            words.resize(n * matrix.row_words, 0u32);
            for (i, piece) in matrix.key.pieces.iter().enumerate() {
                let within = matrix.key.within(i, first..first + n);
                if within.is_empty() {
                    continue;
                }
                let stored = piece.first + within.start..piece.first + within.end;
                let read;
                // The weight's rows, and which of them is the first.
                let (weight, at) = match whole.get(&piece.weight) {
                    Some(weight) => (weight, stored.start),
                    None => {
                        read = self.source.rows(&self.spec.weights, piece.weight, stored).await?;
                        (&read, 0)
                    }
                };
                for (k, row) in within.enumerate() {
                    let (_, bytes) = weight.row(at + k)?;
                    let out = (matrix.key.device_row(i, row) - first) * matrix.row_words;
                    matrix.format.repack_row(bytes, matrix.cols, &mut words[out..out + matrix.row_words]);
                }
            }
            let offset = 4 * (first - rows.start) * matrix.row_words;
            self.write(buffer, offset as u64, &words).await?;
            first += n;
        }
        Ok(())
    }

    async fn vector(&mut self, key: &VectorKey) -> Result<Bound> {
        let mut parts = Vec::with_capacity(key.parts.len());
        for &(id, len) in &key.parts {
            let mut values = match id {
                Some(id) => self.load(id).await?.to_f32()?,
                None => vec![],
            };
            values.resize(len, 0.0);
            parts.push(values);
        }
        let values = match key.in_turns {
            false => parts.concat(),
            true => (0..parts[0].len()).flat_map(|i| parts.iter().map(move |part| part[i])).collect(),
        };
        let buffer = self.gpu.buffer("vector", 4 * values.len() as u64, Use::Storage).await?;
        self.write(&buffer, 0, bytemuck::cast_slice(&values)).await?;
        Ok(Bound::all(&buffer))
    }

    async fn load(&self, id: WeightId) -> Result<LoadedWeight> {
        Ok(self.source.load(&self.spec.weights, id).await?)
    }

    /// Hands words over, and waits until the device has taken them where many are on their way.
    async fn write(&mut self, buffer: &Buffer, offset: u64, words: &[u32]) -> Result<()> {
        self.gpu.queue().write_buffer(buffer.raw(), offset, bytemuck::cast_slice(words));
        self.done += 4 * words.len() as u64;
        self.waiting += 4 * words.len();
        if self.waiting >= UPLOAD_AT_ONCE {
            self.gpu.queue().submit([]);
            self.gpu.wait().await?;
            self.waiting = 0;
        }
        Ok(self.watch.tell(Stage::Load, self.done, self.total)?)
    }
}
