//! Complex state-space duality: the layer that MBJS calls "mamba3", whose states turn as they decay.
//!
//! Seen from a plane that turns with them the states only decay: with `m = l + i phi` and `theta` the sum of `phi dt` from the
//! start of a chunk, `e^-i theta input B` enters and `e^-i theta C` reads, each pair as two real states. So it is the
//! recurrence of [`chunk`](super::chunk), and at the end of a chunk the states turn on.
#![allow(unsafe_code)]

use selkie_model::reference::ops::CssdShape;

use super::{
    chunk::{CHUNK, COLUMNS, Chunk, Gram, Matrix, MatrixMut, from_blocks, state_len, to_blocks},
    state::{Recurrence, RecurrentState},
};
use crate::{
    Pool,
    error::{Error, Result, expect},
    kernels::{Shared, scratch::with_scratch},
};

/// `s = e^(dt m) s + (e^(dt m) - 1) e^-m B x; y = Re(conj(C) s) + d x` for each head, `dt` after its bias and a softplus.
#[derive(Clone, Debug)]
pub struct Cssd {
    shape: CssdShape,
    /// `[n_heads, 2]`
    a_log: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Vec<f32>,
    /// `head_dim`, rounded up.
    width: usize,
    widths: [usize; 2],
}

impl Cssd {
    /// `a_log`, `[n_heads, 2]`, are pairs (l, phi); `d` and `dt_bias` are `[n_heads]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or are zero.
    pub fn new(shape: CssdShape, a_log: &[f32], d: &[f32], dt_bias: &[f32]) -> Result<Self> {
        let CssdShape { n_heads, head_dim, n_groups, d_state } = shape;
        if [n_heads, head_dim, n_groups, d_state].contains(&0) {
            return Err(Error::Parameter("a cssd layer has heads, channels, groups and a state"));
        }
        expect("A of a cssd layer", "values", 2 * n_heads, a_log.len())?;
        expect("D of a cssd layer", "values", n_heads, d.len())?;
        expect("dt bias of a cssd layer", "values", n_heads, dt_bias.len())?;
        Ok(Self {
            a_log: a_log.to_vec(),
            d: d.to_vec(),
            dt_bias: dt_bias.to_vec(),
            width: head_dim.next_multiple_of(COLUMNS),
            widths: [n_heads * head_dim + 4 * n_groups * d_state, n_heads],
            shape,
        })
    }

    /// Values of a head's state.
    fn len(&self) -> usize {
        state_len(self.shape.head_dim, 2 * self.shape.d_state)
    }

    /// Keys, queries and decays of a chunk of one head; returns by how much the states turn until its end. In f64: these
    /// are few numbers, and their errors would add up.
    fn prepare(&self, head: usize, xbc: &[f32], dt: &[f32], k: &mut [f32], q: &mut [f32], decays: &mut [f32]) -> f64 {
        let CssdShape { n_heads, head_dim, n_groups, d_state } = self.shape;
        let (decay, phase) = (f64::from(self.a_log[2 * head]), f64::from(self.a_log[2 * head + 1]));
        let b = n_heads * head_dim + head * n_groups / n_heads * 2 * d_state;
        let c = b + n_groups * 2 * d_state;
        let shrunk = (-decay).exp();
        let inverse = (shrunk * phase.cos(), -shrunk * phase.sin());
        let mut turn = 0f64;
        let rows = xbc.chunks_exact(self.widths[0]).zip(dt.chunks_exact(n_heads)).zip(decays);
        for (row, ((xbc, dt), log_decay)) in rows.enumerate() {
            let raw = f64::from(dt[head] + self.dt_bias[head]);
            let delta = raw.max(0.0) + (-raw.abs()).exp().ln_1p();
            *log_decay = (delta * decay) as f32;
            turn = (turn + delta * phase) % std::f64::consts::TAU;
            let (size, angle) = ((delta * decay).exp(), delta * phase);
            let less_one = (size * angle.cos() - 1.0, size * angle.sin());
            let input = times(less_one, inverse);
            let back = (turn.cos(), -turn.sin());
            let input = times(input, back);
            let keys = row * 2 * d_state..(row + 1) * 2 * d_state;
            turned(&xbc[b..b + 2 * d_state], input, &mut k[keys.clone()]);
            turned(&xbc[c..c + 2 * d_state], back, &mut q[keys]);
        }
        turn
    }
}

fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// Pairs (re, im) times a complex number.
fn turned(x: &[f32], by: (f64, f64), out: &mut [f32]) {
    let (re, im) = (by.0 as f32, by.1 as f32);
    for (x, out) in x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0) {
        *out = [x[0] * re - x[1] * im, x[0] * im + x[1] * re];
    }
}

/// Rows of states, pairs of (re, im) below each other, times a complex number of size 1.
fn turn_states(state: &mut [f32], by: f64) {
    let (cos, sin) = (by.cos() as f32, by.sin() as f32);
    for pair in state.chunks_exact_mut(2 * COLUMNS) {
        let (re, im) = pair.split_at_mut(COLUMNS);
        for (re, im) in re.iter_mut().zip(im) {
            (*re, *im) = (*re * cos - *im * sin, *re * sin + *im * cos);
        }
    }
}

impl Recurrence for Cssd {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.head_dim
    }

    fn planes(&self) -> Vec<usize> {
        vec![self.shape.n_heads * self.shape.head_dim * self.shape.d_state * 2]
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        vec![vec![0.0; self.shape.n_heads * self.len()]]
    }

    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]) {
        let &[xbc, dt] = inputs else { unreachable!("as many as widths") };
        let CssdShape { n_heads, head_dim, d_state, .. } = self.shape;
        let (state, out, isa) = (Shared(planes[0].as_mut_ptr()), Shared(out.as_mut_ptr()), pool.isa());
        let (columns, keys) = (self.widths[0], 2 * d_state);
        let many = CHUNK.min(rows);
        let parts = [many * keys, many * keys, many * self.width, many * self.width, CHUNK * CHUNK];
        let rest = (keys * CHUNK).max(2 * CHUNK * CHUNK);
        pool.run(n_heads, |head| {
            let (state, out) = (&state, &out);
            // SAFETY: the plane has this head's state, and no other task touches it.
            let state = unsafe { std::slice::from_raw_parts_mut(state.0.add(head * self.len()), self.len()) };
            with_scratch(parts.iter().sum::<usize>() + rest, |scratch| {
                let (k, rest) = scratch.split_at_mut(parts[0]);
                let (q, rest) = rest.split_at_mut(parts[1]);
                let (x, rest) = rest.split_at_mut(parts[2]);
                let (y, rest) = rest.split_at_mut(parts[3]);
                let (gram, scratch) = rest.split_at_mut(parts[4]);
                x.fill(0.0);
                for first in (0..rows).step_by(CHUNK) {
                    let rows = CHUNK.min(rows - first);
                    let (xbc, dt) =
                        (&xbc[first * columns..][..rows * columns], &dt[first * n_heads..][..rows * n_heads]);
                    let mut decays = [0f32; CHUNK];
                    let turn = self.prepare(head, xbc, dt, k, q, &mut decays[..rows]);
                    for (x, xbc) in x.chunks_exact_mut(self.width).zip(xbc.chunks_exact(columns)) {
                        x[..head_dim].copy_from_slice(&xbc[head * head_dim..][..head_dim]);
                    }
                    let matrix = |x: &[f32], stride: usize| Matrix { at: x.as_ptr(), stride };
                    let (k, q) = (matrix(k, keys), matrix(q, keys));
                    isa.run(Gram { rows, rank: 1, d_state: keys, q, k, out: &mut *gram, scratch: &mut *scratch });
                    isa.run(Chunk {
                        rows,
                        rank: 1,
                        d_state: keys,
                        q,
                        k,
                        gram,
                        x: matrix(x, self.width),
                        decays: &decays,
                        gains: &[1.0; CHUNK],
                        own: &[1.0; CHUNK],
                        d: self.d[head],
                        state: &mut *state,
                        y: MatrixMut { at: y.as_mut_ptr(), stride: self.width },
                        scratch: &mut *scratch,
                    });
                    turn_states(state, turn);
                    for (row, y) in y.chunks_exact(self.width).take(rows).enumerate() {
                        let at = ((first + row) * n_heads + head) * head_dim;
                        // SAFETY: the result has this row, and no other task writes this head's columns.
                        let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(at), head_dim) };
                        out.copy_from_slice(&y[..head_dim]);
                    }
                }
            });
        });
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![from_blocks(self.shape.head_dim, 2 * self.shape.d_state, &planes[0])]
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![to_blocks(self.shape.head_dim, 2 * self.shape.d_state, &planes[0])]
    }
}

/// The state of one sequence: one plane, `[n_heads, head_dim, d_state, 2]`.
pub type CssdState = RecurrentState<Cssd>;

impl CssdState {
    /// Takes in rows of `xbc`, x, B and C beside each other, the latter pairs (re, im), `[rows, n_heads * head_dim + 4 *
    /// n_groups * d_state]`, with `dt` (before its bias), `[rows, n_heads]`, and writes `y` into `out`, `[rows, n_heads *
    /// head_dim]`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, xbc: &[f32], dt: &[f32], out: &mut [f32]) -> Result<()> {
        self.advance(pool, &[xbc, dt], out)
    }
}
