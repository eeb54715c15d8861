//! Softmax attention over a cache.

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
}

impl AttentionShape {
    /// The shape of a plan's op.
    pub fn of(op: &AttentionOp) -> Self {
        let &AttentionOp { n_heads, n_kv_heads, head_dim, scale, softcap, window, .. } = op;
        Self { n_heads, n_kv_heads, head_dim, v_head_dim: head_dim, scale, softcap, window }
    }

    /// The positions which the query at `position` sees.
    pub fn visible(&self, position: usize) -> std::ops::Range<usize> {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))..position + 1
    }
}

/// `softmax(scale · q · Kᵀ) · V` for queries `[rows, n_heads · head_dim]` at positions `past..past + rows`, over keys and
/// values `[positions, n_kv_heads · head_dim]` which hold those rows already.
pub fn attention<T: Real>(q: &[T], k: &[T], v: &[T], past: usize, shape: &AttentionShape) -> Vec<T> {
    let &AttentionShape { n_heads, n_kv_heads, head_dim, v_head_dim, .. } = shape;
    let rows = q.len() / (n_heads * head_dim);
    let mut out = vec![T::default(); rows * n_heads * v_head_dim];
    for row in 0..rows {
        let visible = shape.visible(past + row);
        for head in 0..n_heads {
            let kv_head = head / (n_heads / n_kv_heads);
            let query = &q[(row * n_heads + head) * head_dim..][..head_dim];
            let probabilities = softmax(visible.clone().map(|position| {
                let key = &k[(position * n_kv_heads + kv_head) * head_dim..][..head_dim];
                score(query, key, shape)
            }));
            let result = &mut out[(row * n_heads + head) * v_head_dim..][..v_head_dim];
            for (position, p) in visible.clone().zip(probabilities) {
                let value = &v[(position * n_kv_heads + kv_head) * v_head_dim..][..v_head_dim];
                result.iter_mut().zip(value).for_each(|(r, &v)| *r += p * v);
            }
        }
    }
    out
}

fn score<T: Real>(query: &[T], key: &[T], shape: &AttentionShape) -> T {
    let dot: T = query.iter().zip(key).map(|(&q, &k)| q * k).sum();
    let score = dot * T::from_f32(shape.scale);
    match shape.softcap.map(T::from_f32) {
        Some(cap) => cap * (score / cap).tanh(),
        None => score,
    }
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
