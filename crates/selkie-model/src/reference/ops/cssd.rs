//! Complex state-space duality: the layer that MBJS calls "mamba3".

use std::ops::Range;

use super::{softplus, ssd::Columns};
use crate::reference::Real;

/// The sizes of a [`cssd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CssdShape {
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; head `h` belongs to group `h · n_groups / n_heads`.
    pub n_groups: usize,
    /// Complex states of one channel.
    pub d_state: usize,
}

impl CssdShape {
    fn columns(&self) -> Columns {
        let &Self { n_heads, head_dim, n_groups, d_state } = self;
        Columns { n_heads, head_dim, n_groups, group_width: 2 * d_state }
    }

    /// Where the states of `head` lie in `[n_heads, head_dim, d_state, 2]`.
    fn states(&self, head: usize) -> Range<usize> {
        let each = self.head_dim * self.d_state * 2;
        head * each..(head + 1) * each
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug)]
struct Complex<T> {
    re: T,
    im: T,
}

impl<T: Real> Complex<T> {
    fn new(re: T, im: T) -> Self {
        Self { re, im }
    }

    fn of(pair: &[T]) -> Self {
        Self::new(pair[0], pair[1])
    }

    /// e to this power.
    fn exp(self) -> Self {
        let size = self.re.exp();
        Self::new(size * self.im.cos(), size * self.im.sin())
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }

    fn scaled(self, by: T) -> Self {
        Self::new(by * self.re, by * self.im)
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }
}

/// A head's factors at one step: `decay = e^{Δm}` and `input = (decay - 1) · e^{-m}`, where `m` is `ℓ + iφ` of the head.
///
/// MBJS takes `m` for A in the one and for `ln A` in the other; what it has computed so its models have learnt.
struct Factors<T> {
    decay: Complex<T>,
    input: Complex<T>,
}

impl<T: Real> Factors<T> {
    fn new(m: Complex<T>, dt: T) -> Self {
        let decay = m.scaled(dt).exp();
        let moved = Complex::new(decay.re - T::from_f64(1.0), decay.im);
        Self { decay, input: moved.times(m.scaled(T::from_f64(-1.0)).exp()) }
    }
}

/// Complex states `s = decay · s + input · B · x` and `y = Re(Σ_n conj(C) · s) + d · x` for each head, row after row. With
/// `Δ = softplus(dt + dt_bias)` and `m = ℓ + iφ`: `decay = e^{Δm}`, `input = (decay - 1) · e^{-m}`.
///
/// `xbc` `[rows, n_heads · head_dim + 4 · n_groups · d_state]` with columns x | B | C, B and C in pairs (re, im), `dt` (raw)
/// `[rows, n_heads]`, `a_log` `[n_heads, 2]` pairs (ℓ, φ), `d` and `dt_bias` `[n_heads]`, `state`
/// `[n_heads, head_dim, d_state, 2]`, in and out; gives `[rows, n_heads · head_dim]`.
pub fn cssd<T: Real>(
    xbc: &[T],
    dt: &[T],
    a_log: &[T],
    d: &[T],
    dt_bias: &[T],
    shape: &CssdShape,
    state: &mut [T],
) -> Vec<T> {
    let columns = shape.columns();
    let mut y = Vec::with_capacity(dt.len() * shape.head_dim);
    for (row, dt) in dt.chunks_exact(shape.n_heads).enumerate() {
        for head in 0..shape.n_heads {
            let [x, b, c] = [columns.x(row, head), columns.b(row, head), columns.c(row, head)].map(|at| &xbc[at]);
            let factors = Factors::new(Complex::of(&a_log[2 * head..]), softplus(dt[head] + dt_bias[head]));
            for (&x, states) in x.iter().zip(state[shape.states(head)].chunks_exact_mut(2 * shape.d_state)) {
                let mut sum = d[head] * x;
                for ((s, b), c) in states.chunks_exact_mut(2).zip(b.chunks_exact(2)).zip(c.chunks_exact(2)) {
                    let entering = factors.input.times(Complex::of(b)).scaled(x);
                    let next = factors.decay.times(Complex::of(s)).plus(entering);
                    (s[0], s[1]) = (next.re, next.im);
                    sum += c[0] * next.re + c[1] * next.im;
                }
                y.push(sum);
            }
        }
    }
    y
}
