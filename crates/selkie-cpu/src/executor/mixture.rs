//! Mixtures of experts: rows are gathered by expert, so that each expert's weights are read once a pass.

use selkie_model::{
    WeightId,
    reference::ops::route,
    spec::{Gating, Mixture},
};

use crate::{
    Activations, Error, Matrix, Pool, Q8, Result,
    executor::{kind, weights::Loaded},
    kernels::{
        matmul::{Product, matmul, matmul_gated},
        vector::{activate, clamped_swiglu, gate},
    },
};

/// Room that a mixture uses.
#[derive(Default)]
pub(super) struct Scratch {
    q8: Q8,
    scores: Vec<f32>,
    gathered: Vec<f32>,
    hidden: Vec<f32>,
    ups: Vec<f32>,
    down: Vec<f32>,
}

/// A row that an expert works on, and by how much its result counts.
#[derive(Clone, Copy)]
struct Job {
    row: usize,
    weight: f32,
}

/// `out = Σ weight · down(gating(gate(x), up(x)))` over each row's experts, in ascending index.
pub(super) fn run(
    pool: &Pool,
    x: &[f32],
    m: &Mixture,
    weights: &Loaded,
    exact: bool,
    s: &mut Scratch,
    out: &mut [f32],
) -> Result<()> {
    let router = weights.matrix(m.router);
    let d_model = router.inputs();
    let rows = x.len() / d_model;
    s.scores.resize(rows * m.n_experts, 0.0);
    // The choice of experts hangs on small differences: the router is never rounded.
    let bias = m.router_bias.map(|id| weights.vector(id));
    let product = Product { bias, ..Product::new(router, &mut s.scores) };
    matmul(pool, &Activations::exact(x, d_model)?, &mut [product])?;
    let choice_bias = m.routing.choice_bias.map(|id| weights.vector(id));
    let mut jobs: Vec<Vec<Job>> = vec![vec![]; m.n_experts];
    for (row, scores) in s.scores.chunks_exact(m.n_experts).enumerate() {
        for (expert, weight) in route(scores, choice_bias, &m.routing, m.n_used) {
            jobs[expert].push(Job { row, weight });
        }
    }
    out.fill(0.0);
    let experts = Experts::new(m, weights, d_model);
    // Ascending experts: each row's sum is then in the order of the reference.
    for (expert, jobs) in jobs.iter().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
        s.gathered.clear();
        jobs.iter().for_each(|job| s.gathered.extend_from_slice(&x[job.row * d_model..][..d_model]));
        s.hidden.resize(jobs.len() * m.d_ff, 0.0);
        s.down.resize(jobs.len() * d_model, 0.0);
        let input = activations(pool, &s.gathered, d_model, exact, &mut s.q8)?;
        experts.hidden(pool, expert, &input, &mut s.hidden, &mut s.ups)?;
        let input = activations(pool, &s.hidden, m.d_ff, exact, &mut s.q8)?;
        matmul(pool, &input, &mut [experts.down(expert, &mut s.down)])?;
        for (job, y) in jobs.iter().zip(s.down.chunks_exact(d_model)) {
            out[job.row * d_model..][..d_model].iter_mut().zip(y).for_each(|(o, y)| *o += job.weight * y);
        }
    }
    Ok(())
}

fn activations<'a>(pool: &Pool, x: &'a [f32], width: usize, exact: bool, q8: &'a mut Q8) -> Result<Activations<'a>> {
    if exact { Activations::exact(x, width) } else { Activations::fast(pool, x, width, q8) }
}

/// The weights of all experts: a matrix for each; biases `[n_experts, width]`, empty where there are none.
struct Experts<'a> {
    gates: Option<&'a [Matrix]>,
    ups: &'a [Matrix],
    downs: &'a [Matrix],
    gate_bias: &'a [f32],
    up_bias: &'a [f32],
    down_bias: &'a [f32],
    gating: Gating,
    d_ff: usize,
    d_model: usize,
}

impl<'a> Experts<'a> {
    fn new(m: &Mixture, weights: &'a Loaded, d_model: usize) -> Self {
        let bias = |id: Option<WeightId>| id.map_or(&[][..], |id| weights.vector(id));
        Self {
            gates: m.gate.map(|id| weights.stack(id)),
            ups: weights.stack(m.up),
            downs: weights.stack(m.down),
            gate_bias: bias(m.biases.map(|b| b.gate)),
            up_bias: bias(m.biases.map(|b| b.up)),
            down_bias: bias(m.biases.map(|b| b.down)),
            gating: m.gating,
            d_ff: m.d_ff,
            d_model,
        }
    }

    /// What stands between an expert's products, `[rows, d_ff]`.
    fn hidden(
        &self,
        pool: &Pool,
        expert: usize,
        input: &Activations,
        out: &mut [f32],
        ups: &mut Vec<f32>,
    ) -> Result<()> {
        let up = &self.ups[expert];
        let (gates, activation) = match (self.gates, self.gating) {
            (None, Gating::Plain(f)) => {
                matmul(pool, input, &mut [biased(up, self.up_bias, expert, self.d_ff, out)])?;
                activate(pool, kind(f), out);
                return Ok(());
            }
            (Some(gates), Gating::Plain(f)) if self.up_bias.is_empty() => {
                return matmul_gated(pool, input, kind(f), &gates[expert], up, out);
            }
            (Some(gates), gating) => (gates, gating),
            (None, _) => return Err(Error::Parameter("experts that are cut need a gate")),
        };
        ups.resize(out.len(), 0.0);
        let gated = biased(&gates[expert], self.gate_bias, expert, self.d_ff, out);
        matmul(pool, input, &mut [gated, biased(up, self.up_bias, expert, self.d_ff, ups)])?;
        match activation {
            Gating::Plain(f) => gate(pool, kind(f), out, ups),
            Gating::ClampedSwiglu { alpha, limit } => clamped_swiglu(pool, alpha, limit, out, ups),
        }
    }

    /// The product back to the stream.
    fn down<'o>(&self, expert: usize, out: &'o mut [f32]) -> Product<'o>
    where
        'a: 'o,
    {
        biased(&self.downs[expert], self.down_bias, expert, self.d_model, out)
    }
}

/// A product with its expert's `width` values of the biases, where there are any.
fn biased<'a>(weight: &'a Matrix, biases: &'a [f32], expert: usize, width: usize, out: &'a mut [f32]) -> Product<'a> {
    Product { bias: biases.get(expert * width..(expert + 1) * width), ..Product::new(weight, out) }
}
