//! Mixtures of experts.

use super::{attention::softmax, glu, linear, linear::linear_rows};
use crate::{
    LoadedWeights, Result,
    reference::Real,
    spec::{Mixture, Routing},
};

/// An expert that a row uses, and by how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice<T> {
    /// Its index.
    pub expert: usize,
    /// What its output is multiplied by.
    pub weight: T,
}

/// The experts of one row from its router scores, in ascending index. Ties go to the lower index.
pub fn route<T: Real>(scores: &[T], n_used: usize, routing: Routing) -> Vec<Choice<T>> {
    let probabilities = softmax(scores.iter().copied());
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // A stable sort keeps the lower index first where scores are equal.
    order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(std::cmp::Ordering::Equal));
    let mut chosen = order[..n_used].to_vec();
    chosen.sort_unstable();
    match routing {
        Routing::SoftmaxRenormalised => {
            let sum: T = chosen.iter().map(|&e| probabilities[e]).sum();
            chosen.iter().map(|&expert| Choice { expert, weight: probabilities[expert] / sum }).collect()
        }
    }
}

/// Each row `[d_model]` through its chosen experts, summed in ascending index.
///
/// # Errors
/// Where a weight's type has no decoder.
pub fn mixture<T: Real>(x: &[T], m: &Mixture, weights: &LoadedWeights) -> Result<Vec<T>> {
    let scores = linear(x, weights.get(m.router), None)?;
    let d_model = weights.get(m.router).row_len();
    let mut out = vec![T::default(); x.len()];
    for (row, y) in out.chunks_exact_mut(d_model).enumerate() {
        let x = &x[row * d_model..][..d_model];
        for Choice { expert, weight } in route(&scores[row * m.n_experts..][..m.n_experts], m.n_used, m.routing) {
            let wide = |id| linear_rows(x, weights.get(id), expert * m.d_ff, m.d_ff, d_model, None);
            let h = glu(&wide(m.gate)?, &wide(m.up)?, m.activation);
            let down = linear_rows(&h, weights.get(m.down), expert * d_model, d_model, m.d_ff, None)?;
            y.iter_mut().zip(down).for_each(|(y, v)| *y += weight * v);
        }
    }
    Ok(out)
}
