//! Products with a weight, and rows of one.

use crate::{LoadedWeight, Result, reference::Real};

/// `x · weightᵀ + bias`: `[rows, in]` to `[rows, out]`, the weight `[out, in]` in any stored type.
///
/// # Errors
/// Where the weight's type has no decoder.
pub fn linear<T: Real>(x: &[T], weight: &LoadedWeight, bias: Option<&[f32]>) -> Result<Vec<T>> {
    let input = weight.row_len();
    let out = weight.shape.iter().rev().skip(1).product();
    linear_rows(x, weight, 0, out, input, bias)
}

/// As [`linear`], with `out` rows of the weight from row `first` on: one expert of a stack.
pub(super) fn linear_rows<T: Real>(
    x: &[T],
    weight: &LoadedWeight,
    first: usize,
    out: usize,
    input: usize,
    bias: Option<&[f32]>,
) -> Result<Vec<T>> {
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

/// Rows `rows` of `[_, width]`.
pub fn take_rows<T: Real>(x: &[T], width: usize, rows: &[usize]) -> Vec<T> {
    rows.iter().flat_map(|&row| x[row * width..][..width].iter().copied()).collect()
}
