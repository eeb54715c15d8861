//! Mixtures of experts.

use std::collections::BTreeMap;

use super::{
    glu, glu_backward, linear,
    linear::{add_outer, linear_rows, linear_rows_backward},
    linear_backward,
    routing::{route, route_backward},
};
use crate::{LoadedWeights, Result, reference::Real, spec::Mixture};

/// Each row `[d_model]` through its chosen experts, summed in ascending index:
/// `y = Σ weight · down(activation(gate(x)) · up(x))`.
///
/// # Errors
/// Where a weight's type has no decoder.
pub fn mixture<T: Real>(x: &[T], m: &Mixture, weights: &LoadedWeights) -> Result<Vec<T>> {
    let scores = linear(x, weights.get(m.router), None)?;
    let d_model = weights.get(m.router).row_len();
    let mut out = vec![T::default(); x.len()];
    for (row, y) in out.chunks_exact_mut(d_model).enumerate() {
        let x = &x[row * d_model..][..d_model];
        let scores = &scores[row * m.n_experts..][..m.n_experts];
        for (expert, weight) in route(scores, None, &m.routing.into(), m.n_used) {
            let down = Expert { m, weights, expert, d_model }.forward(x)?.down;
            y.iter_mut().zip(down).for_each(|(y, v)| *y += weight * v);
        }
    }
    Ok(out)
}

/// What [`mixture_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureGradients<T> {
    /// `[rows, d_model]`.
    pub x: Vec<T>,
    /// `[n_experts, d_model]`.
    pub router: Vec<T>,
    /// Of each expert that some row used, by its index.
    pub experts: BTreeMap<usize, ExpertGradients<T>>,
}

/// The gradients of one expert's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertGradients<T> {
    /// `[d_ff, d_model]`.
    pub gate: Vec<T>,
    /// `[d_ff, d_model]`.
    pub up: Vec<T>,
    /// `[d_model, d_ff]`.
    pub down: Vec<T>,
}

/// The gradients of [`mixture`] from `dy` `[rows, d_model]`: each expert's block gets `weight · dy`, its weight gets
/// `dy · block(x)`, and so, through [`route_backward`], do the router and `x`.
///
/// # Errors
/// Where a weight's type has no decoder.
pub fn mixture_backward<T: Real>(
    x: &[T],
    m: &Mixture,
    weights: &LoadedWeights,
    dy: &[T],
) -> Result<MixtureGradients<T>> {
    let router = weights.get(m.router);
    let d_model = router.row_len();
    let scores = linear(x, router, None)?;
    let mut experts = BTreeMap::new();
    let mut dscores = Vec::with_capacity(scores.len());
    let mut dx = Vec::with_capacity(x.len());
    for (row, (x, dy)) in x.chunks_exact(d_model).zip(dy.chunks_exact(d_model)).enumerate() {
        let scores = &scores[row * m.n_experts..][..m.n_experts];
        let choices = route(scores, None, &m.routing.into(), m.n_used);
        let mut dweights = Vec::with_capacity(choices.len());
        let mut dx_row = vec![T::default(); d_model];
        for &(expert, weight) in &choices {
            let block = Expert { m, weights, expert, d_model };
            let made = block.forward(x)?;
            dweights.push(made.down.iter().zip(dy).map(|(&v, &dy)| v * dy).sum());
            let dblock: Vec<T> = dy.iter().map(|&dy| weight * dy).collect();
            let gradients = experts.entry(expert).or_insert_with(|| block.no_gradients());
            let through = block.backward(x, &made, &dblock, gradients)?;
            dx_row.iter_mut().zip(through).for_each(|(dx, d)| *dx += d);
        }
        let dscores_row = route_backward(scores, &choices, &m.routing.into(), &dweights);
        let through = linear_backward(router, &dscores_row)?;
        dx.extend(dx_row.iter().zip(through).map(|(&a, b)| a + b));
        dscores.extend(dscores_row);
    }
    let mut drouter = vec![T::default(); m.n_experts * d_model];
    add_outer(x, &dscores, &mut drouter, d_model);
    Ok(MixtureGradients { x: dx, router: drouter, experts })
}

/// One expert: its rows of the stacked weights.
struct Expert<'a> {
    m: &'a Mixture,
    weights: &'a LoadedWeights,
    expert: usize,
    d_model: usize,
}

/// What an expert makes of one row.
struct Made<T> {
    gate: Vec<T>,
    up: Vec<T>,
    h: Vec<T>,
    down: Vec<T>,
}

impl Expert<'_> {
    fn forward<T: Real>(&self, x: &[T]) -> Result<Made<T>> {
        let &Mixture { gate, up, down, activation, d_ff, .. } = self.m;
        let wide = |id| linear_rows(x, self.weights.get(id), self.expert * d_ff, d_ff, None);
        let (gate, up) = (wide(gate)?, wide(up)?);
        let h = glu(&gate, &up, activation);
        let down = linear_rows(&h, self.weights.get(down), self.expert * self.d_model, self.d_model, None)?;
        Ok(Made { gate, up, h, down })
    }

    /// Adds to the weights' gradients and gives that of `x`.
    fn backward<T: Real>(&self, x: &[T], made: &Made<T>, dy: &[T], into: &mut ExpertGradients<T>) -> Result<Vec<T>> {
        let &Mixture { gate, up, down, activation, d_ff, .. } = self.m;
        let dh = linear_rows_backward(self.weights.get(down), self.expert * self.d_model, self.d_model, dy)?;
        let (dgate, dup) = glu_backward(&made.gate, &made.up, activation, &dh);
        add_outer(&made.h, dy, &mut into.down, d_ff);
        add_outer(x, &dgate, &mut into.gate, self.d_model);
        add_outer(x, &dup, &mut into.up, self.d_model);
        let wide = |id, d: &[T]| linear_rows_backward(self.weights.get(id), self.expert * d_ff, d_ff, d);
        Ok(wide(gate, &dgate)?.iter().zip(wide(up, &dup)?).map(|(&a, b)| a + b).collect())
    }

    fn no_gradients<T: Real>(&self) -> ExpertGradients<T> {
        let zeros = vec![T::default(); self.m.d_ff * self.d_model];
        ExpertGradients { gate: zeros.clone(), up: zeros.clone(), down: zeros }
    }
}
