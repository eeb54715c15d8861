//! The recurrence of Mamba-2 (state-space duality): a matrix per head, with one decay per head and token.
#![allow(unsafe_code)]

use std::ops::Range;

use selkie_model::reference::ops::SsdShape;

use super::{
    chunk::{CHUNK, COLUMNS, Chunk, Gram, Matrix, MatrixMut, Step, from_blocks, state_len, to_blocks},
    state::{Recurrence, RecurrentState},
};
use crate::{
    Isa, Pool,
    error::{Error, Result, expect},
    kernels::{
        Shared, math,
        scratch::with_scratch,
        vector::{load_some, store_some},
    },
    simd::{Kernel, Simd},
};

/// From this many rows on they are computed as chunks.
const CHUNKED: usize = 8;

/// Rows whose products of B and C are kept at a time.
const SEGMENT: usize = 16 * CHUNK;

/// `S = exp(dt a) S + dt x B^T; y = S C + d x` for each head, `dt` after its bias, a softplus and its limits.
#[derive(Clone, Debug)]
pub struct Ssd {
    shape: SsdShape,
    a: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Vec<f32>,
    /// `head_dim`, rounded up.
    width: usize,
    widths: [usize; 2],
}

impl Ssd {
    /// `a` (negative), `d` and `dt_bias` are `[n_heads]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or are zero.
    pub fn new(shape: SsdShape, a: &[f32], d: &[f32], dt_bias: Option<&[f32]>) -> Result<Self> {
        let SsdShape { n_heads, head_dim, n_groups, d_state, .. } = shape;
        if [n_heads, head_dim, n_groups, d_state].contains(&0) {
            return Err(Error::Parameter("an SSD layer has heads, channels, groups and a state"));
        }
        expect("A of an SSD layer", "values", n_heads, a.len())?;
        expect("D of an SSD layer", "values", n_heads, d.len())?;
        expect("dt bias of an SSD layer", "values", n_heads, dt_bias.map_or(n_heads, <[f32]>::len))?;
        Ok(Self {
            a: a.to_vec(),
            d: d.to_vec(),
            dt_bias: dt_bias.map_or_else(|| vec![0.0; n_heads], <[f32]>::to_vec),
            width: head_dim.next_multiple_of(COLUMNS),
            widths: [n_heads * head_dim + 2 * n_groups * d_state, n_heads],
            shape,
        })
    }

    fn group_of(&self, head: usize) -> usize {
        head * self.shape.n_groups / self.shape.n_heads
    }

    /// Where B and C of a group begin in a row.
    fn b_and_c(&self, group: usize) -> (usize, usize) {
        let SsdShape { n_heads, head_dim, n_groups, d_state, .. } = self.shape;
        let b = n_heads * head_dim + group * d_state;
        (b, b + n_groups * d_state)
    }

    /// Values of a head's state.
    fn len(&self) -> usize {
        state_len(self.shape.head_dim, self.shape.d_state)
    }

    /// Token by token.
    fn steps(&self, pool: &Pool, state: Shared<f32>, rows: usize, xbc: &[f32], dt: &[f32], out: Shared<f32>) {
        let SsdShape { n_heads, head_dim, d_state, scale_input, .. } = self.shape;
        let (columns, isa) = (self.widths[0], pool.isa());
        pool.split(n_heads, 1, |heads| {
            let (state, out) = (&state, &out);
            with_scratch(2 * self.width + rows * heads.len(), |scratch| {
                let (x, rest) = scratch.split_at_mut(self.width);
                let (y, deltas) = rest.split_at_mut(self.width);
                x.fill(0.0);
                isa.run(Deltas { ssd: self, dt, heads: heads.clone(), out: &mut *deltas });
                for head in heads.clone() {
                    // SAFETY: the plane has this head's state, and no other task touches it.
                    let state = unsafe { std::slice::from_raw_parts_mut(state.0.add(head * self.len()), self.len()) };
                    let (b, c) = self.b_and_c(self.group_of(head));
                    for row in 0..rows {
                        let delta = deltas[row * heads.len() + head - heads.start];
                        let xbc = &xbc[row * columns..][..columns];
                        let input = &xbc[head * head_dim..][..head_dim];
                        let gain = if scale_input { delta } else { 1.0 };
                        x.iter_mut().zip(input).for_each(|(x, input)| *x = gain * input);
                        isa.run(Step {
                            decay: (delta * self.a[head]).exp(),
                            inputs: &[(x, &xbc[b..b + d_state])],
                            q: &xbc[c..c + d_state],
                            state: &mut *state,
                            y: &mut *y,
                        });
                        // SAFETY: the result has this head's columns in each row, and no other task writes them.
                        let out = unsafe {
                            let first = out.0.add((row * n_heads + head) * head_dim);
                            std::slice::from_raw_parts_mut(first, head_dim)
                        };
                        for ((out, y), x) in out.iter_mut().zip(&*y).zip(input) {
                            *out = y + self.d[head] * x;
                        }
                    }
                }
            });
        });
    }

    /// Chunk by chunk.
    fn chunks(&self, pool: &Pool, state: Shared<f32>, rows: usize, xbc: &[f32], dt: &[f32], out: Shared<f32>) {
        let SsdShape { n_heads, head_dim, n_groups, d_state, .. } = self.shape;
        let (columns, isa) = (self.widths[0], pool.isa());
        for first in (0..rows).step_by(SEGMENT) {
            let rows = SEGMENT.min(rows - first);
            let (xbc, dt) = (&xbc[first * columns..][..rows * columns], &dt[first * n_heads..][..rows * n_heads]);
            let chunks = rows.div_ceil(CHUNK);
            let size = CHUNK * CHUNK;
            with_scratch(n_groups * chunks * size + rows * n_heads, |scratch| {
                let (grams, deltas) = scratch.split_at_mut(n_groups * chunks * size);
                isa.run(Deltas { ssd: self, dt, heads: 0..n_heads, out: &mut *deltas });
                let shared = Shared(grams.as_mut_ptr());
                pool.run(n_groups * chunks, |task| {
                    let shared = &shared;
                    let (group, at) = (task / chunks, task % chunks * CHUNK);
                    let (b, c) = self.b_and_c(group);
                    let matrix = |column| Matrix { at: xbc[at * columns + column..].as_ptr(), stride: columns };
                    // SAFETY: there is room for all tasks, each its own.
                    let out = unsafe { std::slice::from_raw_parts_mut(shared.0.add(task * size), size) };
                    let rows = CHUNK.min(rows - at);
                    with_scratch(d_state * CHUNK, |scratch| {
                        isa.run(Gram { rows, rank: 1, d_state, q: matrix(c), k: matrix(b), out, scratch })
                    });
                });
                let (grams, deltas) = (&*grams, &*deltas);
                pool.run(n_heads, |head| {
                    let (state, out) = (&state, &out);
                    let group = self.group_of(head);
                    // SAFETY: the plane has this head's state, and no other task touches it.
                    let state = unsafe { std::slice::from_raw_parts_mut(state.0.add(head * self.len()), self.len()) };
                    with_scratch(2 * CHUNK * (CHUNK + self.width), |scratch| {
                        for chunk in 0..chunks {
                            let at = chunk * CHUNK;
                            let many = CHUNK.min(rows - at);
                            let gram = &grams[(group * chunks + chunk) * size..][..size];
                            let (xbc, deltas) = (&xbc[at * columns..], &deltas[at * n_heads..]);
                            // SAFETY: the result has these rows, and no other task writes this head's columns.
                            unsafe {
                                let out = out.0.add(((first + at) * n_heads + head) * head_dim);
                                self.chunk(isa, head, many, xbc, deltas, gram, state, out, scratch);
                            }
                        }
                    });
                });
            });
        }
    }

    /// One chunk of one head; `xbc` and `deltas` begin with its first row.
    ///
    /// # Safety
    /// `out` is valid for the rows of this head.
    #[allow(clippy::too_many_arguments, reason = "one shape, many operands")]
    unsafe fn chunk(
        &self,
        isa: Isa,
        head: usize,
        rows: usize,
        xbc: &[f32],
        deltas: &[f32],
        gram: &[f32],
        state: &mut [f32],
        out: *mut f32,
        scratch: &mut [f32],
    ) {
        let SsdShape { n_heads, head_dim, d_state, scale_input, .. } = self.shape;
        let columns = self.widths[0];
        let (x, rest) = scratch.split_at_mut(CHUNK * self.width);
        let (y, scratch) = rest.split_at_mut(CHUNK * self.width);
        let (mut decays, mut gains) = ([0f32; CHUNK], [1f32; CHUNK]);
        for row in 0..rows {
            let delta = deltas[row * n_heads + head];
            decays[row] = delta * self.a[head];
            if scale_input {
                gains[row] = delta;
            }
        }
        let (b, c) = self.b_and_c(self.group_of(head));
        let matrix = |column: usize| Matrix { at: xbc[column..].as_ptr(), stride: columns };
        // Channels that do not fill blocks are copied to where there is room for whole ones.
        let in_place = head_dim == self.width;
        let inputs = || xbc[head * head_dim..].chunks(columns).map(|row| &row[..head_dim]).take(rows);
        let (x, result) = if in_place {
            (matrix(head * head_dim), MatrixMut { at: out, stride: n_heads * head_dim })
        } else {
            for (x, input) in x.chunks_exact_mut(self.width).zip(inputs()) {
                x[..head_dim].copy_from_slice(input);
                x[head_dim..].fill(0.0);
            }
            (Matrix { at: x.as_ptr(), stride: self.width }, MatrixMut { at: y.as_mut_ptr(), stride: self.width })
        };
        isa.run(Chunk {
            rows,
            rank: 1,
            d_state,
            q: matrix(c),
            k: matrix(b),
            gram,
            x,
            decays: &decays,
            gains: &gains,
            own: &gains,
            d: self.d[head],
            state,
            y: result,
            scratch,
        });
        if !in_place {
            for (row, y) in y.chunks_exact(self.width).take(rows).enumerate() {
                // SAFETY: the caller's.
                let out = unsafe { std::slice::from_raw_parts_mut(out.add(row * n_heads * head_dim), head_dim) };
                out.copy_from_slice(&y[..head_dim]);
            }
        }
    }
}

/// dt after bias, softplus and limits, for some heads: `[rows, heads.len()]`.
struct Deltas<'a> {
    ssd: &'a Ssd,
    dt: &'a [f32],
    heads: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Deltas<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Deltas { ssd, dt, heads, out } = self;
        let (least, most) = (ssd.shape.dt_min, ssd.shape.dt_max);
        for (dt, out) in dt.chunks_exact(ssd.shape.n_heads).zip(out.chunks_exact_mut(heads.len())) {
            let (dt, bias) = (&dt[heads.clone()], &ssd.dt_bias[heads.clone()]);
            for i in (0..dt.len()).step_by(S::LANES) {
                let delta = math::softplus(s, s.add(load_some(s, &dt[i..]), load_some(s, &bias[i..])));
                // The order of operands lets NaN through.
                store_some(s, &mut out[i..], s.min(s.splat(most), s.max(s.splat(least), delta)));
            }
        }
    }
}

impl Recurrence for Ssd {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.head_dim
    }

    fn planes(&self) -> Vec<usize> {
        vec![self.shape.n_heads * self.shape.head_dim * self.shape.d_state]
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        vec![vec![0.0; self.shape.n_heads * self.len()]]
    }

    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]) {
        let &[xbc, dt] = inputs else { unreachable!("as many as widths") };
        let (state, out) = (Shared(planes[0].as_mut_ptr()), Shared(out.as_mut_ptr()));
        if rows < CHUNKED {
            self.steps(pool, state, rows, xbc, dt, out);
        } else {
            self.chunks(pool, state, rows, xbc, dt, out);
        }
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![from_blocks(self.shape.head_dim, self.shape.d_state, &planes[0])]
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![to_blocks(self.shape.head_dim, self.shape.d_state, &planes[0])]
    }
}

/// The state of one sequence: one plane, `[n_heads, head_dim, d_state]`.
pub type SsdState = RecurrentState<Ssd>;

impl SsdState {
    /// Takes in rows of `xbc`, x, B and C beside each other, `[rows, n_heads * head_dim + 2 * n_groups * d_state]`, with
    /// `dt` (before its bias), `[rows, n_heads]`, and writes `y` into `out`, `[rows, n_heads * head_dim]`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, xbc: &[f32], dt: &[f32], out: &mut [f32]) -> Result<()> {
        self.advance(pool, &[xbc, dt], out)
    }
}
