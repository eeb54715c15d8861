//! The gated delta rule (Qwen3-Next's linear attention).

use std::ops::Range;

use super::{attention::dot, sigmoid, softplus};
use crate::reference::Real;

/// Added to the sum of squares of a query or key before the root.
const L2_EPS: f64 = 1e-6;

/// The sizes of a [`delta_rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; head `h` reads with head `h · n_k_heads / n_v_heads` of the queries and keys.
    pub n_v_heads: usize,
    /// Width of a query or key head.
    pub k_dim: usize,
    /// Width of a value head.
    pub v_dim: usize,
}

impl DeltaShape {
    fn width(&self) -> usize {
        2 * self.n_k_heads * self.k_dim + self.n_v_heads * self.v_dim
    }

    /// Where the query that value head `head` reads with lies in rows of q | k | v.
    fn q(&self, row: usize, head: usize) -> Range<usize> {
        let start = row * self.width() + head * self.n_k_heads / self.n_v_heads * self.k_dim;
        start..start + self.k_dim
    }

    fn k(&self, row: usize, head: usize) -> Range<usize> {
        let q = self.q(row, head);
        let behind = self.n_k_heads * self.k_dim;
        q.start + behind..q.end + behind
    }

    fn v(&self, row: usize, head: usize) -> Range<usize> {
        let start = row * self.width() + 2 * self.n_k_heads * self.k_dim + head * self.v_dim;
        start..start + self.v_dim
    }

    /// Where the states of value head `head` lie in `[n_v_heads, k_dim, v_dim]`.
    fn states(&self, head: usize) -> Range<usize> {
        let each = self.k_dim * self.v_dim;
        head * each..(head + 1) * each
    }

    /// What a query is multiplied by: `1 / sqrt(k_dim)`.
    fn scale<T: Real>(&self) -> T {
        T::from_f64(1.0) / T::from_usize(self.k_dim).sqrt()
    }
}

/// For each value head, row after row, with `β = σ(b)`, `g = a_weight · softplus(a + dt_bias)`, q and k of length 1 and q
/// times `1 / sqrt(k_dim)`: `S = e^g · S`, `S = S + k · (β · (v - Sᵀ·k))ᵀ`, `y = Sᵀ · q`.
///
/// `qkv` `[rows, 2 · n_k_heads · k_dim + n_v_heads · v_dim]` with columns q | k | v, `b` and `a` (raw) `[rows, n_v_heads]`,
/// `a_weight` (negative) and `dt_bias` `[n_v_heads]`, `state` `[n_v_heads, k_dim, v_dim]`, in and out; gives
/// `[rows, n_v_heads · v_dim]`.
pub fn delta_rule<T: Real>(
    qkv: &[T],
    b: &[T],
    a: &[T],
    a_weight: &[T],
    dt_bias: &[T],
    shape: &DeltaShape,
    state: &mut [T],
) -> Vec<T> {
    let &DeltaShape { n_v_heads, v_dim, .. } = shape;
    let mut y = Vec::with_capacity(b.len() * v_dim);
    for row in 0..b.len() / n_v_heads {
        for head in 0..n_v_heads {
            let (q, k) = (unit(&qkv[shape.q(row, head)]), unit(&qkv[shape.k(row, head)]));
            let v = &qkv[shape.v(row, head)];
            let at = row * n_v_heads + head;
            let decay = (a_weight[head] * softplus(a[at] + dt_bias[head])).exp();
            let beta = sigmoid(b[at]);

            let s = &mut state[shape.states(head)];
            s.iter_mut().for_each(|s| *s = decay * *s);
            let known = read(s, &k, v_dim);
            let news: Vec<T> = v.iter().zip(known).map(|(&v, known)| beta * (v - known)).collect();
            for (s, &k) in s.chunks_exact_mut(v_dim).zip(&k) {
                s.iter_mut().zip(&news).for_each(|(s, &news)| *s += k * news);
            }
            y.extend(read(s, &q, v_dim).iter().map(|&y| shape.scale::<T>() * y));
        }
    }
    y
}

/// `Sᵀ · q`, `[v_dim]`.
fn read<T: Real>(s: &[T], q: &[T], v_dim: usize) -> Vec<T> {
    let mut out = vec![T::default(); v_dim];
    for (s, &q) in s.chunks_exact(v_dim).zip(q) {
        out.iter_mut().zip(s).for_each(|(out, &s)| *out += q * s);
    }
    out
}

/// `x / sqrt(Σ x² + eps)`.
fn unit<T: Real>(x: &[T]) -> Vec<T> {
    let length = (dot(x, x) + T::from_f64(L2_EPS)).sqrt();
    x.iter().map(|&x| x / length).collect()
}
