//! Mamba-2's state-space duality: one decay a head and step, row after row or in chunks of rows.

use std::ops::Range;

use super::{
    attention::dot,
    chunk::{Chunk, scan_chunk},
    softplus,
};
use crate::reference::Real;

/// The sizes and constants of an [`ssd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdShape {
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; head `h` belongs to group `h · n_groups / n_heads`.
    pub n_groups: usize,
    /// States of one channel.
    pub d_state: usize,
    /// Least step size.
    pub dt_min: f32,
    /// Largest step size; may be infinite.
    pub dt_max: f32,
    /// Whether the input is multiplied by the step size (MBJS's is not).
    pub scale_input: bool,
}

impl SsdShape {
    fn columns(&self) -> Columns {
        let &Self { n_heads, head_dim, n_groups, d_state, .. } = self;
        Columns { n_heads, head_dim, n_groups, group_width: d_state }
    }

    /// `clamp(softplus(dt + bias), dt_min, dt_max)`.
    fn step_size<T: Real>(&self, dt: T, bias: Option<T>) -> T {
        let (least, largest) = (T::from_f32(self.dt_min), T::from_f32(self.dt_max));
        match softplus(dt + bias.unwrap_or_default()) {
            size if size < least => least,
            size if size > largest => largest,
            size => size,
        }
    }

    /// What an input is multiplied by on a step of that size.
    fn input_scale<T: Real>(&self, step_size: T) -> T {
        if self.scale_input { step_size } else { T::from_f64(1.0) }
    }

    /// Where the states of `head` lie in `[n_heads, head_dim, d_state]`.
    fn states(&self, head: usize) -> Range<usize> {
        let each = self.head_dim * self.d_state;
        head * each..(head + 1) * each
    }
}

/// Where x, B and C of a head lie in rows of x | B | C.
pub(super) struct Columns {
    pub n_heads: usize,
    pub head_dim: usize,
    pub n_groups: usize,
    /// Width of B, and of C, of one group.
    pub group_width: usize,
}

impl Columns {
    pub fn width(&self) -> usize {
        self.n_heads * self.head_dim + 2 * self.n_groups * self.group_width
    }

    pub fn x(&self, row: usize, head: usize) -> Range<usize> {
        let start = row * self.width() + head * self.head_dim;
        start..start + self.head_dim
    }

    pub fn b(&self, row: usize, head: usize) -> Range<usize> {
        let group = head * self.n_groups / self.n_heads;
        let start = row * self.width() + self.n_heads * self.head_dim + group * self.group_width;
        start..start + self.group_width
    }

    pub fn c(&self, row: usize, head: usize) -> Range<usize> {
        let b = self.b(row, head);
        let behind = self.n_groups * self.group_width;
        b.start + behind..b.end + behind
    }
}

/// `S = exp(Δ·a) · S + Δ · x · bᵀ`, `y = S · c + d · x` for each head, row after row, with
/// `Δ = clamp(softplus(dt + dt_bias))`; without the factor Δ on the input where the shape says so.
///
/// `xbc` `[rows, n_heads · head_dim + 2 · n_groups · d_state]` with columns x | B | C, `dt` (raw) `[rows, n_heads]`, `a`
/// (negative), `d` and `dt_bias` `[n_heads]`, `state` `[n_heads, head_dim, d_state]`, in and out; gives
/// `[rows, n_heads · head_dim]`.
pub fn ssd<T: Real>(
    xbc: &[T],
    dt: &[T],
    a: &[T],
    d: &[T],
    dt_bias: Option<&[T]>,
    shape: &SsdShape,
    state: &mut [T],
) -> Vec<T> {
    let columns = shape.columns();
    let mut y = Vec::with_capacity(dt.len() * shape.head_dim);
    for (row, dt) in dt.chunks_exact(shape.n_heads).enumerate() {
        for head in 0..shape.n_heads {
            let [x, b, c] = [columns.x(row, head), columns.b(row, head), columns.c(row, head)].map(|at| &xbc[at]);
            let step_size = shape.step_size(dt[head], dt_bias.map(|b| b[head]));
            let decay = (step_size * a[head]).exp();
            let scale = shape.input_scale(step_size);
            for (&x, s) in x.iter().zip(state[shape.states(head)].chunks_exact_mut(shape.d_state)) {
                s.iter_mut().zip(b).for_each(|(s, &b)| *s = decay * *s + scale * x * b);
                y.push(dot(s, c) + d[head] * x);
            }
        }
    }
    y
}

/// As [`ssd`], `chunk` rows at a time, each chunk as products of matrices: what fast executors do with many rows.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and the length of a chunk")]
pub fn ssd_chunked<T: Real>(
    xbc: &[T],
    dt: &[T],
    a: &[T],
    d: &[T],
    dt_bias: Option<&[T]>,
    shape: &SsdShape,
    state: &mut [T],
    chunk: usize,
) -> Vec<T> {
    let &SsdShape { n_heads, head_dim, d_state, .. } = shape;
    let columns = shape.columns();
    let rows = dt.len() / n_heads;
    let mut y = vec![T::default(); rows * n_heads * head_dim];
    for head in 0..n_heads {
        for first in (0..rows).step_by(chunk) {
            let rows = first..(first + chunk).min(rows);
            let of = |at: fn(&Columns, usize, usize) -> Range<usize>| -> Vec<T> {
                rows.clone().flat_map(|row| xbc[at(&columns, row, head)].iter().copied()).collect()
            };
            let sizes = rows.clone().map(|row| shape.step_size(dt[row * n_heads + head], dt_bias.map(|b| b[head])));
            let sizes: Vec<T> = sizes.collect();
            let piece = Chunk {
                q: &of(Columns::c),
                k: &of(Columns::b),
                v: &of(Columns::x),
                log_decay: &sizes.iter().map(|&size| size * a[head]).collect::<Vec<T>>(),
                scale: &sizes.iter().map(|&size| shape.input_scale(size)).collect::<Vec<T>>(),
                d_state,
                head_dim,
                rank: 1,
                own: true,
            };
            let out = scan_chunk(&piece, &mut state[shape.states(head)]);
            for (row, out) in rows.zip(out.chunks_exact(head_dim)) {
                let x = &xbc[columns.x(row, head)];
                let y = &mut y[(row * n_heads + head) * head_dim..][..head_dim];
                y.iter_mut().zip(out).zip(x).for_each(|((y, &out), &x)| *y = out + d[head] * x);
            }
        }
    }
    y
}
