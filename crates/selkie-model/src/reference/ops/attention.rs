//! Softmax attention over a cache.

use std::ops::Range;

use crate::{plan::AttentionOp, reference::Real};

/// The sizes and constants of an attention op.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; query head `i` reads head `i / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Width of a query or key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub v_head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, itself included.
    pub window: Option<usize>,
    /// Whether a query sees no position after its own. If not, it sees all, and there is no window.
    pub causal: bool,
}

impl AttentionShape {
    /// The shape of a plan's op.
    pub fn of(op: &AttentionOp) -> Self {
        let &AttentionOp { n_heads, n_kv_heads, head_dim, scale, softcap, window, .. } = op;
        Self { n_heads, n_kv_heads, head_dim, v_head_dim: head_dim, scale, softcap, window, causal: true }
    }

    /// The positions, of those there are, which the query at `position` sees.
    pub fn visible(&self, position: usize, positions: usize) -> Range<usize> {
        if !self.causal {
            return 0..positions;
        }
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))..position + 1
    }

    /// Where head `head` of row `row` lies in `[rows, n_heads · head_dim]`.
    fn query(&self, row: usize, head: usize) -> Range<usize> {
        chunk(row * self.n_heads + head, self.head_dim)
    }

    /// Where what it reads at `position` lies in `[positions, n_kv_heads · head_dim]`.
    fn key(&self, position: usize, head: usize) -> Range<usize> {
        chunk(position * self.n_kv_heads + head / (self.n_heads / self.n_kv_heads), self.head_dim)
    }

    /// Where what it reads at `position` lies in `[positions, n_kv_heads · v_head_dim]`.
    fn value(&self, position: usize, head: usize) -> Range<usize> {
        chunk(position * self.n_kv_heads + head / (self.n_heads / self.n_kv_heads), self.v_head_dim)
    }

    /// Where its result lies in `[rows, n_heads · v_head_dim]`.
    fn result(&self, row: usize, head: usize) -> Range<usize> {
        chunk(row * self.n_heads + head, self.v_head_dim)
    }

    fn rows<T>(&self, q: &[T]) -> usize {
        q.len() / (self.n_heads * self.head_dim)
    }

    fn positions<T>(&self, k: &[T]) -> usize {
        k.len() / (self.n_kv_heads * self.head_dim)
    }
}

fn chunk(index: usize, width: usize) -> Range<usize> {
    index * width..(index + 1) * width
}

/// `softmax(scale · q · Kᵀ) · V` for queries `[rows, n_heads · head_dim]` at positions `past..past + rows`, over keys and
/// values `[positions, n_kv_heads · head_dim]` which hold those rows already.
pub fn attention<T: Real>(q: &[T], k: &[T], v: &[T], past: usize, shape: &AttentionShape) -> Vec<T> {
    attention_with_sinks(q, k, v, None, past, shape)
}

/// As [`attention`], with a sink for each query head where there are `sinks` `[n_heads]`: one more score, whose value is
/// zero, so that `p = e^s / (e^sink + Σ e^s)`.
pub fn attention_with_sinks<T: Real>(
    q: &[T],
    k: &[T],
    v: &[T],
    sinks: Option<&[T]>,
    past: usize,
    shape: &AttentionShape,
) -> Vec<T> {
    let rows = shape.rows(q);
    let mut out = vec![T::default(); rows * shape.n_heads * shape.v_head_dim];
    for row in 0..rows {
        let visible = shape.visible(past + row, shape.positions(k));
        for head in 0..shape.n_heads {
            let query = &q[shape.query(row, head)];
            let scores = visible.clone().map(|position| score(query, &k[shape.key(position, head)], shape));
            let probabilities = softmax(scores.chain(sinks.map(|s| s[head])));
            let result = &mut out[shape.result(row, head)];
            for (position, &p) in visible.clone().zip(&probabilities) {
                let value = &v[shape.value(position, head)];
                result.iter_mut().zip(value).for_each(|(r, &v)| *r += p * v);
            }
        }
    }
    out
}

/// What [`attention_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGradients<T> {
    /// `[rows, n_heads · head_dim]`.
    pub q: Vec<T>,
    /// `[positions, n_kv_heads · head_dim]`: of every position, cached ones too.
    pub k: Vec<T>,
    /// `[positions, n_kv_heads · v_head_dim]`.
    pub v: Vec<T>,
    /// `[n_heads]`, where there are sinks.
    pub sinks: Option<Vec<T>>,
}

/// The gradients of [`attention_with_sinks`] from that of its result, `dy` `[rows, n_heads · v_head_dim]`.
///
/// For one query: `dv = p·dy`, `dp = dy·v`, `ds = p·(dp - Σ p·dp)` (a sink's `dp` is 0); through the cap
/// `ds·(1 - (s/cap)²)`; then `dq = scale · Σ ds·k` and `dk = scale · ds·q`, summed over the queries that read a key.
pub fn attention_backward<T: Real>(
    q: &[T],
    k: &[T],
    v: &[T],
    sinks: Option<&[T]>,
    past: usize,
    shape: &AttentionShape,
    dy: &[T],
) -> AttentionGradients<T> {
    let zeros = |like: &[T]| vec![T::default(); like.len()];
    let (mut dq, mut dk, mut dv, mut dsinks) = (zeros(q), zeros(k), zeros(v), sinks.map(zeros));
    for row in 0..shape.rows(q) {
        let visible = shape.visible(past + row, shape.positions(k));
        for head in 0..shape.n_heads {
            let (query, dy) = (&q[shape.query(row, head)], &dy[shape.result(row, head)]);
            let scores: Vec<T> = visible.clone().map(|p| score(query, &k[shape.key(p, head)], shape)).collect();
            let probabilities = softmax(scores.iter().copied().chain(sinks.map(|s| s[head])));
            let dp: Vec<T> = visible.clone().map(|position| dot(dy, &v[shape.value(position, head)])).collect();
            let expected: T = probabilities.iter().zip(&dp).map(|(&p, &dp)| p * dp).sum();
            if let (Some(dsinks), Some(&p)) = (&mut dsinks, probabilities.last()) {
                dsinks[head] += -p * expected;
            }
            for (i, position) in visible.clone().enumerate() {
                let p = probabilities[i];
                let ds = p * (dp[i] - expected) * score_derivative(scores[i], shape);
                let (key, at) = (&k[shape.key(position, head)], shape.key(position, head));
                dq[shape.query(row, head)].iter_mut().zip(key).for_each(|(dq, &k)| *dq += ds * k);
                dk[at].iter_mut().zip(query).for_each(|(dk, &q)| *dk += ds * q);
                dv[shape.value(position, head)].iter_mut().zip(dy).for_each(|(dv, &dy)| *dv += p * dy);
            }
        }
    }
    AttentionGradients { q: dq, k: dk, v: dv, sinks: dsinks }
}

/// `scale · q · k`, capped.
fn score<T: Real>(query: &[T], key: &[T], shape: &AttentionShape) -> T {
    let score = dot(query, key) * T::from_f32(shape.scale);
    match shape.softcap.map(T::from_f32) {
        Some(cap) => cap * (score / cap).tanh(),
        None => score,
    }
}

/// The derivative of a score by `q · k`.
fn score_derivative<T: Real>(score: T, shape: &AttentionShape) -> T {
    let scale = T::from_f32(shape.scale);
    match shape.softcap.map(T::from_f32) {
        Some(cap) => scale * (T::from_f64(1.0) - (score / cap) * (score / cap)),
        None => scale,
    }
}

pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// `exp(s - max) / Σ exp(s - max)`.
pub(super) fn softmax<T: Real>(scores: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = scores.collect();
    let Some(max) = values.iter().copied().reduce(|a, b| if b > a { b } else { a }) else { return values };
    values.iter_mut().for_each(|s| *s = (*s - max).exp());
    let sum: T = values.iter().copied().sum();
    values.iter_mut().for_each(|p| *p = *p / sum);
    values
}

/// `ds = p · (dp - Σ p·dp)` of [`softmax`].
pub(super) fn softmax_backward<T: Real>(probabilities: &[T], dp: &[T]) -> Vec<T> {
    let expected = dot(probabilities, dp);
    probabilities.iter().zip(dp).map(|(&p, &dp)| p * (dp - expected)).collect()
}
