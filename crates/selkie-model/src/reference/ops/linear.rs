//! Products with a weight, and rows of one.

use crate::{Error, LoadedWeight, Result, reference::Real};

/// `x · weightᵀ + bias`: `[rows, in]` to `[rows, out]`, the weight `[out, in]` in any stored type.
///
/// # Errors
/// Where the weight's type has no decoder.
pub fn linear<T: Real>(x: &[T], weight: &LoadedWeight, bias: Option<&[f32]>) -> Result<Vec<T>> {
    linear_rows(x, weight, 0, rows_of(weight), bias)
}

/// `dx = dy · weight` of [`linear`]: `[rows, out]` to `[rows, in]`, the weight decoded row by row.
///
/// # Errors
/// Where the weight's type has no decoder.
pub fn linear_backward<T: Real>(weight: &LoadedWeight, dy: &[T]) -> Result<Vec<T>> {
    linear_rows_backward(weight, 0, rows_of(weight), dy)
}

/// `(dweight, dbias)` of [`linear`] with a weight `[out, in]` that learns: `dweight = dyᵀ · x`, `dbias = Σ dy` over
/// rows; from `x` `[rows, in]` and `dy` `[rows, out]`.
pub fn linear_backward_weight<T: Real>(x: &[T], dy: &[T], out: usize, input: usize) -> (Vec<T>, Vec<T>) {
    let (mut dweight, mut dbias) = (vec![T::default(); out * input], vec![T::default(); out]);
    add_outer(x, dy, &mut dweight, input);
    for dy in dy.chunks_exact(out) {
        dbias.iter_mut().zip(dy).for_each(|(db, &dy)| *db += dy);
    }
    (dweight, dbias)
}

/// As [`linear`], with `out` rows of the weight from row `first` on: one expert of a stack.
pub(super) fn linear_rows<T: Real>(
    x: &[T],
    weight: &LoadedWeight,
    first: usize,
    out: usize,
    bias: Option<&[f32]>,
) -> Result<Vec<T>> {
    let input = weight.row_len();
    let rows = x.len() / input;
    let mut y = vec![T::default(); rows * out];
    let mut w = vec![0.0; input];
    for o in 0..out {
        weight.row_f32(first + o, &mut w)?;
        for row in 0..rows {
            let dot: T = x[row * input..][..input].iter().zip(&w).map(|(&x, &w)| x * T::from_f32(w)).sum();
            y[row * out + o] = dot + bias.map_or(T::default(), |b| T::from_f32(b[o]));
        }
    }
    Ok(y)
}

/// As [`linear_backward`], for those rows of the weight.
pub(super) fn linear_rows_backward<T: Real>(
    weight: &LoadedWeight,
    first: usize,
    out: usize,
    dy: &[T],
) -> Result<Vec<T>> {
    let input = weight.row_len();
    let rows = dy.len() / out;
    let mut dx = vec![T::default(); rows * input];
    let mut w = vec![0.0; input];
    for o in 0..out {
        weight.row_f32(first + o, &mut w)?;
        for row in 0..rows {
            let dy = dy[row * out + o];
            dx[row * input..][..input].iter_mut().zip(&w).for_each(|(dx, &w)| *dx += dy * T::from_f32(w));
        }
    }
    Ok(dx)
}

/// `dweight += dyᵀ · x`, `[out, in]`.
pub(super) fn add_outer<T: Real>(x: &[T], dy: &[T], dweight: &mut [T], input: usize) {
    let out = dweight.len() / input;
    for (x, dy) in x.chunks_exact(input).zip(dy.chunks_exact(out)) {
        for (dw, &dy) in dweight.chunks_exact_mut(input).zip(dy) {
            dw.iter_mut().zip(x).for_each(|(dw, &x)| *dw += dy * x);
        }
    }
}

fn rows_of(weight: &LoadedWeight) -> usize {
    weight.shape.iter().rev().skip(1).product()
}

/// `scale · table[ids[r]]`, rows of `[vocab_size, d_model]`.
///
/// # Errors
/// Where an id is outside the table, or its type has no decoder.
pub fn embed<T: Real>(ids: &[u32], table: &LoadedWeight, scale: T) -> Result<Vec<T>> {
    let mut row = vec![0.0; table.row_len()];
    let mut out = Vec::with_capacity(ids.len() * row.len());
    for &id in ids {
        table.row_f32(id as usize, &mut row)?;
        out.extend(row.iter().map(|&v| scale * T::from_f32(v)));
    }
    Ok(out)
}

/// `dtable` `[vocab_size, d_model]` of [`embed`]: row `i` is `scale · Σ dy[r]` over the rows `r` with `ids[r] = i`.
///
/// # Errors
/// Where an id is outside the table.
pub fn embed_backward<T: Real>(ids: &[u32], vocab_size: usize, scale: T, dy: &[T]) -> Result<Vec<T>> {
    let width = dy.len() / ids.len().max(1);
    let mut dtable = vec![T::default(); vocab_size * width];
    for (r, &id) in ids.iter().enumerate() {
        let drow = dtable.get_mut(id as usize * width..).and_then(|rest| rest.get_mut(..width));
        let drow = drow.ok_or(Error::TokenId { id, vocab_size })?;
        drow.iter_mut().zip(&dy[r * width..][..width]).for_each(|(d, &dy)| *d += scale * dy);
    }
    Ok(dtable)
}

/// Rows `rows` of `[_, width]`.
pub fn take_rows<T: Real>(x: &[T], width: usize, rows: &[usize]) -> Vec<T> {
    rows.iter().flat_map(|&row| x[row * width..][..width].iter().copied()).collect()
}

/// `dx` `[n_rows, width]` of [`take_rows`]: each taken row's gradient where it came from, 0 elsewhere, the sum where one
/// was taken twice.
pub fn take_rows_backward<T: Real>(n_rows: usize, width: usize, rows: &[usize], dy: &[T]) -> Vec<T> {
    let mut dx = vec![T::default(); n_rows * width];
    for (&row, dy) in rows.iter().zip(dy.chunks_exact(width)) {
        dx[row * width..][..width].iter_mut().zip(dy).for_each(|(dx, &dy)| *dx += dy);
    }
    dx
}
