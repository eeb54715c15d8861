//! Mamba-2's state-space duality: one decay a head and step, row after row or in chunks of rows.

use std::ops::Range;

use super::{
    attention::dot,
    chunk::{Chunk, scan_chunk},
    softplus, softplus_derivative,
};
use crate::{reference::Real, spec::SsdShape};

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

    /// The derivative of [`step_size`](Self::step_size) by `dt`: none where it is clamped.
    fn step_size_derivative<T: Real>(&self, dt: T, bias: Option<T>) -> T {
        let raw = dt + bias.unwrap_or_default();
        let clamped = self.step_size(dt, bias) != softplus(raw);
        if clamped { T::default() } else { softplus_derivative(raw) }
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

/// What [`ssd_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdGradients<T> {
    /// `[rows, n_heads · head_dim + 2 · n_groups · d_state]`.
    pub xbc: Vec<T>,
    /// `[rows, n_heads]`, of the raw values.
    pub dt: Vec<T>,
    /// `[n_heads]`.
    pub a: Vec<T>,
    /// `[n_heads]`.
    pub d: Vec<T>,
    /// `[n_heads]`, for a bias that is there or could be.
    pub dt_bias: Vec<T>,
    /// `[n_heads, head_dim, d_state]`: of the state before the first row.
    pub state: Vec<T>,
}

/// The gradients of [`ssd`] from those of its result, `dy` `[rows, n_heads · head_dim]`, and of the state after it,
/// `dstate`; `state` is the one before it.
///
/// From the last row to the first, with `dS` what comes back from the rows behind: `dS += dy · cᵀ`, `dc = Sᵀ · dy`,
/// `dx = Δ · dS · b + d · dy`, `db = Δ · dSᵀ · x`, `dΔ = xᵀ·dS·b + a·e^{Δa}·⟨dS, S'⟩`, `da = Δ·e^{Δa}·⟨dS, S'⟩` with S' the
/// state before the row, and for the row before `dS = e^{Δa} · dS`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn ssd_backward<T: Real>(
    xbc: &[T],
    dt: &[T],
    a: &[T],
    d: &[T],
    dt_bias: Option<&[T]>,
    shape: &SsdShape,
    state: &[T],
    dy: &[T],
    dstate: &[T],
) -> SsdGradients<T> {
    let &SsdShape { n_heads, head_dim, d_state, .. } = shape;
    let columns = shape.columns();
    let rows = dt.len() / n_heads;
    // The states before each row, and after the last.
    let mut states = vec![state.to_vec()];
    for row in 0..rows {
        let mut next = states[row].clone();
        let (xbc, dt) = (&xbc[row * columns.width()..][..columns.width()], &dt[row * n_heads..][..n_heads]);
        ssd(xbc, dt, a, d, dt_bias, shape, &mut next);
        states.push(next);
    }

    let zeros = |n: usize| vec![T::default(); n];
    let mut g = SsdGradients {
        xbc: zeros(xbc.len()),
        dt: zeros(dt.len()),
        a: zeros(n_heads),
        d: zeros(n_heads),
        dt_bias: zeros(n_heads),
        state: dstate.to_vec(),
    };
    for row in (0..rows).rev() {
        for head in 0..n_heads {
            let at = row * n_heads + head;
            let (x_at, b_at, c_at) = (columns.x(row, head), columns.b(row, head), columns.c(row, head));
            let [x, b, c] = [x_at.clone(), b_at.clone(), c_at.clone()].map(|at| &xbc[at]);
            let bias = dt_bias.map(|b| b[head]);
            let step_size = shape.step_size(dt[at], bias);
            let (decay, scale) = ((step_size * a[head]).exp(), shape.input_scale(step_size));
            let ds = &mut g.state[shape.states(head)];
            let (before, after) = (&states[row][shape.states(head)], &states[row + 1][shape.states(head)]);

            let (mut kept, mut entered) = (T::default(), T::default());
            for p in 0..head_dim {
                let (x, dy) = (x[p], dy[at * head_dim + p]);
                g.d[head] += dy * x;
                g.xbc[x_at.start + p] += d[head] * dy;
                for n in 0..d_state {
                    let own = p * d_state + n;
                    ds[own] += dy * c[n];
                    g.xbc[c_at.start + n] += dy * after[own];
                    g.xbc[x_at.start + p] += scale * ds[own] * b[n];
                    g.xbc[b_at.start + n] += scale * ds[own] * x;
                    kept += ds[own] * before[own];
                    entered += ds[own] * x * b[n];
                    ds[own] = decay * ds[own];
                }
            }
            let dlog_decay = decay * kept;
            g.a[head] += step_size * dlog_decay;
            let dsize = a[head] * dlog_decay + if shape.scale_input { entered } else { T::default() };
            let draw = dsize * shape.step_size_derivative(dt[at], bias);
            g.dt[at] = draw;
            g.dt_bias[head] += draw;
        }
    }
    g
}
