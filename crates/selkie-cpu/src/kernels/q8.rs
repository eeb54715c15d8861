//! Activations: f32 rows, and their twin in eight bits for products with quantised weights.
#![allow(unsafe_code)]

use super::{Shared, formats::GROUP, gemm, gemv};
use crate::{
    Pool,
    error::{Error, Result, expect},
    simd::{Kernel, Simd},
};

/// Rows of activations in eight bits: per 32 values one f32 scale and 32 int8, with the sums that offsets of weights are
/// multiplied with. A buffer to be kept: quantising again reuses its memory.
#[derive(Clone, Debug, Default)]
pub struct Q8 {
    rows: usize,
    columns: usize,
    /// `[rows, columns]`
    pub(crate) q: Vec<i8>,
    /// The same as words, `[rows, columns]`, where the set multiplies those; else empty.
    pub(crate) words: Vec<i16>,
    /// `[rows, columns / 32]`
    pub(crate) scales: Vec<f32>,
    /// Sums of what the int8 stand for, `[rows, columns / 32]`
    pub(crate) sums: Vec<f32>,
    /// The same of each sixteen, `[rows, columns / 16]`
    pub(crate) half_sums: Vec<f32>,
}

impl Q8 {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quantises `x`, `[rows, columns]`; `columns` divides by 32. Values that are not finite come out as not a number,
    /// with all that share their scale.
    ///
    /// # Errors
    /// Where the sizes do not divide.
    pub fn quantise(&mut self, pool: &Pool, x: &[f32], columns: usize) -> Result<()> {
        if columns == 0 || !columns.is_multiple_of(GROUP) {
            return Err(Error::Parameter("rows of activations in Q8 hold a multiple of 32 values"));
        }
        let rows = x.len() / columns;
        expect("activations", "values", rows * columns, x.len())?;
        (self.rows, self.columns) = (rows, columns);
        self.q.resize(x.len(), 0);
        self.scales.resize(x.len() / GROUP, 0.0);
        self.sums.resize(x.len() / GROUP, 0.0);
        self.half_sums.resize(x.len() / (GROUP / 2), 0.0);
        let out = (
            Shared(self.q.as_mut_ptr()),
            Shared(self.scales.as_mut_ptr()),
            Shared(self.sums.as_mut_ptr()),
            Shared(self.half_sums.as_mut_ptr()),
        );
        let isa = pool.isa();
        // 256 groups take some 5 us.
        pool.split(x.len() / GROUP, 256, |groups| {
            let (q, scales, sums, half_sums) = &out;
            // SAFETY: the vectors have room for all groups, and no two tasks have the same ones.
            unsafe {
                let slice = |p: *mut f32, of: usize| {
                    std::slice::from_raw_parts_mut(p.add(groups.start * of), groups.len() * of)
                };
                isa.run(Quantise {
                    x: &x[groups.start * GROUP..groups.end * GROUP],
                    q: std::slice::from_raw_parts_mut(q.0.add(groups.start * GROUP), groups.len() * GROUP),
                    scales: slice(scales.0, 1),
                    sums: slice(sums.0, 1),
                    half_sums: slice(half_sums.0, 2),
                });
            }
        });
        if rows > gemv::MOST_ROWS && gemm::wants_words(isa) {
            self.words.clear();
            self.words.extend(self.q.iter().map(|&q| q as i16));
        }
        Ok(())
    }

    /// Rows quantised last.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn columns(&self) -> usize {
        self.columns
    }
}

struct Quantise<'a> {
    x: &'a [f32],
    q: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [f32],
    half_sums: &'a mut [f32],
}

impl Kernel for Quantise<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (groups, q) = (self.x.as_chunks::<GROUP>().0, self.q.as_chunks_mut::<GROUP>().0);
        for (i, (x, q)) in groups.iter().zip(q).enumerate() {
            let mut largest = s.splat(0.0);
            for v in (0..GROUP).step_by(S::LANES) {
                // SAFETY: `x` has GROUP values, which LANES divides.
                largest = s.max(largest, s.abs(unsafe { s.load(x.as_ptr().add(v)) }));
            }
            let largest = s.reduce_max(largest);
            let inverse = s.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
            let mut halves = [s.splat(0.0); 2];
            for v in (0..GROUP).step_by(S::LANES) {
                // SAFETY: as above, and `q` has GROUP values too.
                unsafe {
                    let whole = s.round(s.mul(s.load(x.as_ptr().add(v)), inverse));
                    s.store_i8(q.as_mut_ptr().add(v), whole);
                    halves[v / (GROUP / 2)] = s.add(halves[v / (GROUP / 2)], whole);
                }
            }
            let halves = halves.map(|h| s.sum(h));
            // Integers cannot hold infinities and NaN; the scale can, and the sums have caught them.
            let sum = halves[0] + halves[1];
            let scale = if sum.is_nan() { f32::NAN } else { largest / 127.0 };
            self.scales[i] = scale;
            self.sums[i] = scale * sum;
            self.half_sums[2 * i] = scale * halves[0];
            self.half_sums[2 * i + 1] = scale * halves[1];
        }
    }
}

/// What products multiply their weights with: `[rows, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) q8: Option<&'a Q8>,
}

impl<'a> Activations<'a> {
    /// f32 activations: every product is computed in f32, quantised weights are decoded first.
    ///
    /// # Errors
    /// Where `x` is not whole rows.
    pub fn exact(x: &'a [f32], columns: usize) -> Result<Self> {
        let rows = x.len().checked_div(columns).unwrap_or(0);
        expect("activations", "values", rows * columns, x.len())?;
        Ok(Self { x, columns, rows, q8: None })
    }

    /// Activations whose products with quantised weights are computed in integers, from `buffer`, which is filled here.
    /// Rows which do not divide into groups of 32 stay exact: only float weights can have such.
    ///
    /// # Errors
    /// Where `x` is not whole rows.
    pub fn fast(pool: &Pool, x: &'a [f32], columns: usize, buffer: &'a mut Q8) -> Result<Self> {
        let exact = Self::exact(x, columns)?;
        if columns == 0 || !columns.is_multiple_of(GROUP) {
            return Ok(exact);
        }
        buffer.quantise(pool, x, columns)?;
        Ok(Self { q8: Some(buffer), ..exact })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn columns(&self) -> usize {
        self.columns
    }
}
