//! Mixtures of experts: rows are gathered by expert, so that each expert's weights are read once a pass.

use selkie_model::{reference::ops::route, spec::Mixture};

use crate::{
    Activations, Matrix, Pool, Q8, Result,
    executor::{kind, weights::Loaded},
    kernels::matmul::{Product, matmul, matmul_gated},
};

/// Room that a mixture uses.
#[derive(Default)]
pub(super) struct Scratch {
    q8: Q8,
    scores: Vec<f32>,
    gathered: Vec<f32>,
    hidden: Vec<f32>,
    down: Vec<f32>,
}

/// A row that an expert works on, and by how much its result counts.
#[derive(Clone, Copy)]
struct Job {
    row: usize,
    weight: f32,
}

/// `out = Σ weight · down(activation(gate(x)) · up(x))` over each row's experts, in ascending index.
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
    matmul(pool, &Activations::exact(x, d_model)?, &mut [Product::new(router, &mut s.scores)])?;
    let mut jobs: Vec<Vec<Job>> = vec![vec![]; m.n_experts];
    for (row, scores) in s.scores.chunks_exact(m.n_experts).enumerate() {
        for (expert, weight) in route(scores, None, &m.routing.into(), m.n_used) {
            jobs[expert].push(Job { row, weight });
        }
    }
    out.fill(0.0);
    let (gates, ups, downs) = (weights.stack(m.gate), weights.stack(m.up), weights.stack(m.down));
    // Ascending experts: each row's sum is then in the order of the reference.
    for (expert, jobs) in jobs.iter().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
        s.gathered.clear();
        jobs.iter().for_each(|job| s.gathered.extend_from_slice(&x[job.row * d_model..][..d_model]));
        s.hidden.resize(jobs.len() * m.d_ff, 0.0);
        s.down.resize(jobs.len() * d_model, 0.0);
        let input = activations(pool, &s.gathered, d_model, exact, &mut s.q8)?;
        matmul_gated(pool, &input, kind(m.activation), &gates[expert], &ups[expert], &mut s.hidden)?;
        let input = activations(pool, &s.hidden, m.d_ff, exact, &mut s.q8)?;
        let down: &Matrix = &downs[expert];
        matmul(pool, &input, &mut [Product::new(down, &mut s.down)])?;
        for (job, y) in jobs.iter().zip(s.down.chunks_exact(d_model)) {
            out[job.row * d_model..][..d_model].iter_mut().zip(y).for_each(|(o, y)| *o += job.weight * y);
        }
    }
    Ok(())
}

fn activations<'a>(pool: &Pool, x: &'a [f32], width: usize, exact: bool, q8: &'a mut Q8) -> Result<Activations<'a>> {
    if exact { Activations::exact(x, width) } else { Activations::fast(pool, x, width, q8) }
}
