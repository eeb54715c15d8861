//! Mixtures of experts.

use std::collections::BTreeMap;

use super::{
    activate, activate_derivative, clamped_swiglu, clamped_swiglu_backward, glu, glu_backward, linear,
    linear::{add_outer, linear_rows, linear_rows_backward},
    linear_backward, linear_backward_weight, route, route_backward,
};
use crate::{
    LoadedWeights, Result, WeightId,
    reference::Real,
    spec::{Gating, Mixture},
};

/// Each row `[d_model]` through its chosen experts, summed in ascending index: `y = Σ weight · down(gating(gate(x), up(x)))`.
///
/// # Errors
/// Where a weight's type has no decoder.
pub fn mixture<T: Real>(x: &[T], m: &Mixture, weights: &LoadedWeights) -> Result<Vec<T>> {
    let routed = Routed::new(x, m, weights)?;
    let d_model = weights.get(m.router).row_len();
    let mut out = vec![T::default(); x.len()];
    for (row, y) in out.chunks_exact_mut(d_model).enumerate() {
        let x = &x[row * d_model..][..d_model];
        for (expert, weight) in routed.choices(row) {
            let down = Expert { m, weights, expert, d_model }.forward(x)?.down;
            y.iter_mut().zip(down).for_each(|(y, v)| *y += weight * v);
        }
    }
    Ok(out)
}

/// The router's products of all rows, and what choosing takes.
struct Routed<'a, T> {
    products: Vec<T>,
    choice_bias: Option<Vec<T>>,
    m: &'a Mixture,
}

impl<'a, T: Real> Routed<'a, T> {
    fn new(x: &[T], m: &'a Mixture, weights: &LoadedWeights) -> Result<Self> {
        let vector = |id: WeightId| weights.get(id).to_f32();
        let products = linear(x, weights.get(m.router), m.router_bias.map(vector).transpose()?.as_deref())?;
        let choice_bias = m.routing.choice_bias.map(vector).transpose()?.map(|bias| super::widen(&bias));
        Ok(Self { products, choice_bias, m })
    }

    fn row(&self, row: usize) -> &[T] {
        &self.products[row * self.m.n_experts..][..self.m.n_experts]
    }

    fn choices(&self, row: usize) -> Vec<(usize, T)> {
        route(self.row(row), self.choice_bias.as_deref(), &self.m.routing, self.m.n_used)
    }
}

/// What [`mixture_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureGradients<T> {
    /// `[rows, d_model]`.
    pub x: Vec<T>,
    /// `[n_experts, d_model]`.
    pub router: Vec<T>,
    /// `[n_experts]`: of the router's bias, where there is one.
    pub router_bias: Vec<T>,
    /// Of each expert that some row used, by its index.
    pub experts: BTreeMap<usize, ExpertGradients<T>>,
}

/// The gradients of one expert's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertGradients<T> {
    /// `[d_ff, d_model]`; zero where experts have no gate.
    pub gate: Vec<T>,
    /// `[d_ff, d_model]`.
    pub up: Vec<T>,
    /// `[d_model, d_ff]`.
    pub down: Vec<T>,
    /// Of the biases of gate, up and down, where there are any.
    pub biases: [Vec<T>; 3],
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
    let routed = Routed::new(x, m, weights)?;
    let mut experts = BTreeMap::new();
    let mut dproducts = Vec::with_capacity(routed.products.len());
    let mut dx = Vec::with_capacity(x.len());
    for (row, (x, dy)) in x.chunks_exact(d_model).zip(dy.chunks_exact(d_model)).enumerate() {
        let choices = routed.choices(row);
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
        let dproducts_row = route_backward(routed.row(row), &choices, &m.routing, &dweights);
        let through = linear_backward(router, &dproducts_row)?;
        dx.extend(dx_row.iter().zip(through).map(|(&a, b)| a + b));
        dproducts.extend(dproducts_row);
    }
    let (drouter, drouter_bias) = linear_backward_weight(x, &dproducts, m.n_experts, d_model);
    Ok(MixtureGradients { x: dx, router: drouter, router_bias: drouter_bias, experts })
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
    /// Empty where experts have no gate.
    gate: Vec<T>,
    up: Vec<T>,
    h: Vec<T>,
    down: Vec<T>,
}

impl Expert<'_> {
    /// This expert's `width` values of a bias `[n_experts, width]`.
    fn bias(&self, id: Option<WeightId>, width: usize) -> Result<Option<Vec<f32>>> {
        let own = |id| Ok(self.weights.get(id).to_f32()?[self.expert * width..][..width].to_vec());
        id.map(own).transpose()
    }

    fn forward<T: Real>(&self, x: &[T]) -> Result<Made<T>> {
        let &Mixture { gate, up, down, biases, gating, d_ff, .. } = self.m;
        let wide = |id, bias: Option<WeightId>| {
            let bias = self.bias(bias, d_ff)?;
            linear_rows(x, self.weights.get(id), self.expert * d_ff, d_ff, bias.as_deref())
        };
        let up = wide(up, biases.map(|b| b.up))?;
        let gate = gate.map_or(Ok(vec![]), |gate| wide(gate, biases.map(|b| b.gate)))?;
        let h = match gating {
            Gating::Plain(f) if gate.is_empty() => up.iter().map(|&v| activate(v, f)).collect(),
            Gating::Plain(f) => glu(&gate, &up, f),
            Gating::ClampedSwiglu { alpha, limit } => {
                clamped_swiglu(&gate, &up, T::from_f32(alpha), T::from_f32(limit))
            }
        };
        let bias = self.bias(biases.map(|b| b.down), self.d_model)?;
        let first = self.expert * self.d_model;
        let down = linear_rows(&h, self.weights.get(down), first, self.d_model, bias.as_deref())?;
        Ok(Made { gate, up, h, down })
    }

    /// Adds to the weights' gradients and gives that of `x`.
    fn backward<T: Real>(&self, x: &[T], made: &Made<T>, dy: &[T], into: &mut ExpertGradients<T>) -> Result<Vec<T>> {
        let &Mixture { gate, up, down, gating, d_ff, .. } = self.m;
        let dh = linear_rows_backward(self.weights.get(down), self.expert * self.d_model, self.d_model, dy)?;
        let (dgate, dup) = match gating {
            Gating::Plain(f) if made.gate.is_empty() => {
                let through = |(&v, &d): (&T, &T)| d * activate_derivative(v, f);
                (vec![], made.up.iter().zip(&dh).map(through).collect())
            }
            Gating::Plain(f) => glu_backward(&made.gate, &made.up, f, &dh),
            Gating::ClampedSwiglu { alpha, limit } => {
                clamped_swiglu_backward(&made.gate, &made.up, T::from_f32(alpha), T::from_f32(limit), &dh)
            }
        };
        add_outer(&made.h, dy, &mut into.down, d_ff);
        add_outer(x, &dup, &mut into.up, self.d_model);
        for (sum, d) in into.biases.iter_mut().zip([dgate.as_slice(), &dup, dy]) {
            sum.iter_mut().zip(d).for_each(|(sum, &d)| *sum += d);
        }
        let wide = |id, d: &[T]| linear_rows_backward(self.weights.get(id), self.expert * d_ff, d_ff, d);
        let mut dx = wide(up, &dup)?;
        if let Some(gate) = gate {
            add_outer(x, &dgate, &mut into.gate, self.d_model);
            dx.iter_mut().zip(wide(gate, &dgate)?).for_each(|(dx, d)| *dx += d);
        }
        Ok(dx)
    }

    fn no_gradients<T: Real>(&self) -> ExpertGradients<T> {
        let zeros = |n: usize| vec![T::default(); n];
        let all = self.m.d_ff * self.d_model;
        let biases = [self.m.d_ff, self.m.d_ff, self.d_model].map(zeros);
        ExpertGradients { gate: zeros(all), up: zeros(all), down: zeros(all), biases }
    }
}
