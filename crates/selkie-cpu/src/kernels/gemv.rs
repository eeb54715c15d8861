//! Products with few rows of activations: every weight is read once, so memory sets the pace.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::ops::Range;

use super::{
    Sink,
    formats::{Format, GROUP, Scales},
    q8::Q8,
};
use crate::{
    matrix::Part,
    simd::{Kernel, Simd},
};

/// Most rows of activations which this path is for.
pub(crate) const MOST_ROWS: usize = 4;

/// How many bytes further than the next rows to prefetch: what memory has on its way.
pub(crate) const AHEAD: usize = 1024;

/// Dot products of `weights` (rows of a part) with all rows of `activations`, into columns from `column` on.
pub(crate) struct Gemv<'a, F> {
    pub(crate) part: &'a Part,
    pub(crate) weights: Range<usize>,
    pub(crate) activations: &'a Q8,
    pub(crate) sink: Sink,
    pub(crate) column: usize,
    pub(crate) format: std::marker::PhantomData<F>,
}

impl<F: Format> Kernel for Gemv<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.activations.rows() {
            1 => self.one(s, 0),
            2 => self.walk::<S, 2, 2>(s, 0),
            rows => {
                // Pairs, since four rows do not fit the registers, and one more if the count is odd.
                for first in (0..rows - rows % 2).step_by(2) {
                    self.walk::<S, 2, 2>(s, first);
                }
                if rows % 2 == 1 {
                    self.one(s, rows - 1);
                }
            }
        }
    }
}

impl<F: Format> Gemv<'_, F> {
    /// All weights with row `token` of activations.
    #[inline(always)]
    fn one<S: Simd>(&self, s: S, token: usize) {
        if S::DOTS == 4 { self.walk::<S, 4, 1>(s, token) } else { self.walk::<S, 2, 1>(s, token) }
    }

    /// All weights with `T` rows of activations from `token` on, `R` at a time.
    #[inline(always)]
    fn walk<S: Simd, const R: usize, const T: usize>(&self, s: S, token: usize) {
        let mut row = self.weights.start;
        while row + R <= self.weights.end {
            self.rows::<S, R, T>(s, row, token);
            row += R;
        }
        while row < self.weights.end {
            self.rows::<S, 1, T>(s, row, token);
            row += 1;
        }
    }

    #[inline(always)]
    fn rows<S: Simd, const R: usize, const T: usize>(&self, s: S, row: usize, token: usize) {
        let blocks = self.activations.columns() / (GROUP * F::GROUPS);
        let groups = blocks * F::GROUPS;
        let mut acc = [[s.a_zero(); T]; R];
        let mut offset = [[0f32; T]; R];
        // SAFETY: `row..row + R` are rows of the part, whose length is that of the activations' rows; `token..token + T`
        // are rows of the activations. The driver checked both.
        unsafe {
            let weights = self.part.bytes.as_ptr().add(row * self.part.row_bytes);
            let q = self.activations.q.as_ptr().add(token * groups * GROUP);
            let scales = self.activations.scales.as_ptr().add(token * groups);
            let sums = self.activations.sums.as_ptr().add(token * groups);
            let half_sums = self.activations.half_sums.as_ptr().add(token * groups * 2);
            for b in 0..blocks {
                // The next rows, which lie behind these: the processor follows long streams, not many short ones.
                let ahead = weights.wrapping_add(R * self.part.row_bytes + b * R * F::BYTES + AHEAD);
                for line in (0..R * F::BYTES).step_by(64) {
                    s.prefetch(ahead.wrapping_add(line));
                }
                let block: [*const u8; R] =
                    std::array::from_fn(|r| weights.add(r * self.part.row_bytes + b * F::BYTES));
                let mut w: [Scales; R] = std::array::from_fn(|_| Scales::new());
                for r in 0..R {
                    F::scales(s, block[r], &mut w[r]);
                }
                for g in 0..F::GROUPS {
                    let at = b * F::GROUPS + g;
                    for r in 0..R {
                        let quants = F::quants(s, block[r], g);
                        for t in 0..T {
                            let a = s.load_b(q.add((t * groups + at) * GROUP).cast());
                            let a_scale = *scales.add(t * groups + at);
                            let d = |i: usize| w[r].d[i] * a_scale;
                            let scale = if F::HALVES { s.a_halves(d(2 * g), d(2 * g + 1)) } else { s.a_splat(d(g)) };
                            if F::BITS == 8 {
                                // The zero is taken care of in the product.
                                acc[r][t] = s.dot_wide(acc[r][t], quants, a, scale);
                                continue;
                            }
                            acc[r][t] = s.dot(acc[r][t], quants, a, scale);
                            let m = |i: usize| if F::OFFSETS { w[r].m[i] } else { -(F::ZERO as f32) * w[r].d[i] };
                            if F::HALVES {
                                let sums = half_sums.add(2 * (t * groups + at));
                                offset[r][t] += m(2 * g) * *sums + m(2 * g + 1) * *sums.add(1);
                            } else {
                                offset[r][t] += m(g) * *sums.add(t * groups + at);
                            }
                        }
                    }
                }
            }
            for t in 0..T {
                let values: [f32; R] = std::array::from_fn(|r| s.a_sum(acc[r][t]) + offset[r][t]);
                self.sink.put(token + t, self.column + row - self.weights.start, &values);
            }
        }
    }
}
