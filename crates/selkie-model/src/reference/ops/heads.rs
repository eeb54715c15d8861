//! What is done to each head, rank or row by itself.

use super::{
    attention::dot,
    linear::{linear_rows, linear_rows_backward},
    sigmoid, sigmoid_derivative,
};
use crate::{LoadedWeight, Result, reference::Real};

/// `[a | b]` for each head: `a` `[rows, n_heads · a_dim]` and `b` `[rows, n_heads · b_dim]` to
/// `[rows, n_heads · (a_dim + b_dim)]`.
pub fn join_heads<T: Real>(a: &[T], b: &[T], a_dim: usize, b_dim: usize) -> Vec<T> {
    a.chunks_exact(a_dim).zip(b.chunks_exact(b_dim)).flat_map(|(a, b)| [a, b].concat()).collect()
}

/// `(da, db)` of [`join_heads`].
pub fn join_heads_backward<T: Real>(a_dim: usize, b_dim: usize, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let (mut da, mut db) = (vec![], vec![]);
    for dy in dy.chunks_exact(a_dim + b_dim) {
        da.extend_from_slice(&dy[..a_dim]);
        db.extend_from_slice(&dy[a_dim..]);
    }
    (da, db)
}

/// A product for each head: `x` `[rows, n_heads · in]` with `weight` `[n_heads, out, in]` to `[rows, n_heads · out]`.
///
/// # Errors
/// Where the weight's type has no decoder.
pub fn head_linear<T: Real>(x: &[T], weight: &LoadedWeight, n_heads: usize) -> Result<Vec<T>> {
    let (input, out) = (weight.row_len(), weight.shape[1]);
    by_head(x, n_heads, input, out, |head, x| linear_rows(x, weight, head * out, out, None))
}

/// `dx` of [`head_linear`].
///
/// # Errors
/// Where the weight's type has no decoder.
pub fn head_linear_backward<T: Real>(weight: &LoadedWeight, n_heads: usize, dy: &[T]) -> Result<Vec<T>> {
    let (input, out) = (weight.row_len(), weight.shape[1]);
    by_head(dy, n_heads, out, input, |head, dy| linear_rows_backward(weight, head * out, out, dy))
}

/// Applies `f` to each head's rows `[rows, input]`, which gives `[rows, out]`.
fn by_head<T: Real>(
    x: &[T],
    n_heads: usize,
    input: usize,
    out: usize,
    f: impl Fn(usize, &[T]) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let rows = x.len() / (n_heads * input);
    let mut y = vec![T::default(); rows * n_heads * out];
    for head in 0..n_heads {
        let own: Vec<T> = x.chunks_exact(input).skip(head).step_by(n_heads).flatten().copied().collect();
        let made = f(head, &own)?;
        let places = y.chunks_exact_mut(out).skip(head).step_by(n_heads);
        places.zip(made.chunks_exact(out)).for_each(|(y, made)| y.copy_from_slice(made));
    }
    Ok(y)
}

/// `y[t, h, r, :] = w[h, r, :] · x[t, h, :]`: `x` `[rows, n_heads · head_dim]` and `w` `[n_heads, rank, head_dim]` to
/// `[rows, n_heads, rank, head_dim]`.
pub fn rank_expand<T: Real>(x: &[T], w: &[T], n_heads: usize, head_dim: usize) -> Vec<T> {
    let each = w.len() / n_heads;
    let heads = x.chunks_exact(head_dim).zip(w.chunks_exact(each).cycle());
    heads.flat_map(|(x, w)| w.iter().zip(x.iter().cycle()).map(|(&w, &x)| w * x)).collect()
}

/// `(dx, dw)` of [`rank_expand`] from `dy` `[rows, n_heads, rank, head_dim]`.
pub fn rank_expand_backward<T: Real>(x: &[T], w: &[T], n_heads: usize, head_dim: usize, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let each = w.len() / n_heads;
    let mut dw = vec![T::default(); w.len()];
    for (at, (x, dy)) in x.chunks_exact(head_dim).zip(dy.chunks_exact(each)).enumerate() {
        let dw = &mut dw[at % n_heads * each..][..each];
        dw.iter_mut().zip(dy).zip(x.iter().cycle()).for_each(|((dw, &dy), &x)| *dw += dy * x);
    }
    (rank_reduce(dy, w, n_heads, head_dim), dw)
}

/// `y[t, h, :] = Σ_r w[h, r, :] · x[t, h, r, :]`: `x` `[rows, n_heads, rank, head_dim]` and `w` `[n_heads, rank, head_dim]`
/// to `[rows, n_heads · head_dim]`.
pub fn rank_reduce<T: Real>(x: &[T], w: &[T], n_heads: usize, head_dim: usize) -> Vec<T> {
    let each = w.len() / n_heads;
    let heads = x.chunks_exact(each).zip(w.chunks_exact(each).cycle());
    let sum = |(x, w): (&[T], &[T])| -> Vec<T> {
        (0..head_dim).map(|p| (p..each).step_by(head_dim).map(|i| w[i] * x[i]).sum()).collect()
    };
    heads.flat_map(sum).collect()
}

/// `(dx, dw)` of [`rank_reduce`] from `dy` `[rows, n_heads · head_dim]`.
pub fn rank_reduce_backward<T: Real>(x: &[T], w: &[T], n_heads: usize, head_dim: usize, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let (_, dw) = rank_expand_backward(dy, w, n_heads, head_dim, x);
    (rank_expand(dy, w, n_heads, head_dim), dw)
}

/// `σ(gate[r]) · x[r, :]` for rows that are `width` wide, `gate` `[rows]`.
pub fn scale_rows<T: Real>(x: &[T], gate: &[T], width: usize) -> Vec<T> {
    x.chunks_exact(width).zip(gate).flat_map(|(x, &gate)| x.iter().map(move |&x| sigmoid(gate) * x)).collect()
}

/// `(dx, dgate)` of [`scale_rows`]: `dx = σ(gate) · dy`, `dgate = σ'(gate) · Σ dy·x`.
pub fn scale_rows_backward<T: Real>(x: &[T], gate: &[T], width: usize, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(gate);
    let dgate = rows.map(|((x, dy), &gate)| sigmoid_derivative(gate) * dot(dy, x)).collect();
    (scale_rows(dy, gate, width), dgate)
}
