use std::sync::Arc;

use selkie_cpu::{Cssd, CssdState, Pool, Result};
use selkie_model::reference::ops::{self, CssdShape};

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Layer, check, feed, near, to_f64},
};

#[derive(Clone)]
struct Complex {
    shape: CssdShape,
    a_log: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Vec<f32>,
    state: CssdState,
}

impl Complex {
    fn new(shape: CssdShape, a_log: Vec<f32>, d: Vec<f32>, dt_bias: Vec<f32>) -> Self {
        let op = Cssd::new(shape, &a_log, &d, &dt_bias).expect("sizes that fit");
        Self { shape, a_log, d, dt_bias, state: CssdState::new(Arc::new(op)) }
    }

    fn random(random: &mut Random, shape: CssdShape) -> Self {
        let heads = shape.n_heads;
        // Decays below zero, phases up to a whole turn.
        let pairs = random.values(2 * heads);
        let a_log = pairs.chunks(2).flat_map(|x| [-0.02 - x[0].abs(), 3.0 + 3.0 * x[1]]).collect();
        Self::new(shape, a_log, random.values(heads), random.values(heads))
    }

    fn inputs(&self) -> impl Fn(&mut Random, usize) -> Vec<Vec<f32>> {
        let widths = self.widths();
        move |random, rows| {
            let dt = random.values(rows * widths[1]).iter().map(|dt| 3.0 * dt - 1.0).collect();
            vec![random.values(rows * widths[0]), dt]
        }
    }
}

impl Layer for Complex {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        let CssdShape { n_heads, head_dim, n_groups, d_state } = self.shape;
        vec![n_heads * head_dim + 4 * n_groups * d_state, n_heads]
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.head_dim
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        self.state.forward(pool, inputs[0], inputs[1], out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let [a_log, d, dt_bias] = [&self.a_log, &self.d, &self.dt_bias].map(|x| to_f64(x));
        ops::cssd(&inputs[0], &inputs[1], &a_log, &d, &dt_bias, &self.shape, &mut planes[0])
    }
}

#[test]
fn promises() {
    let mut random = Random::new(31);
    for (n_heads, head_dim, n_groups, d_state) in [(4, 8, 1, 8), (3, 5, 3, 3), (2, 33, 1, 16)] {
        let layer = Complex::random(&mut random, CssdShape { n_heads, head_dim, n_groups, d_state });
        check(&format!("{n_heads} x {head_dim} x {d_state}"), &layer, 300, 2e-5, layer.inputs());
    }
}

/// As MBJS begins: states that never decay, and one head that takes in nothing. And states that grow.
#[test]
fn no_decay_and_growth() {
    let shape = CssdShape { n_heads: 3, head_dim: 4, n_groups: 1, d_state: 4 };
    let layer = Complex::new(shape, vec![0.0, 0.0, 0.0, 2.094_395_2, 0.004, 4.188_790_3], vec![1.0; 3], vec![0.0; 3]);
    let inputs = layer.inputs()(&mut Random::new(32), 2000);
    let mut planes = vec![vec![0.0; 96]];
    let wanted = layer.definition(&mut planes, &inputs.iter().map(|x| to_f64(x)).collect::<Vec<_>>());
    for pool in pools() {
        let mut whole = layer.clone();
        let out = feed(&mut whole, &pool, &inputs, 0..2000);
        for head in 0..3 {
            let part = |i: &usize| i % 12 / 4 == head;
            let out: Vec<f32> = (0..out.len()).filter(part).map(|i| out[i]).collect();
            let wanted: Vec<f64> = (0..wanted.len()).filter(part).map(|i| wanted[i]).collect();
            near(&format!("head {head} on {}", pool.isa()), &out, &wanted, 1e-4);
        }
        near("state", &whole.planes()[0], &planes[0], 1e-4);
    }
}

#[test]
fn refusals() {
    let shape = CssdShape { n_heads: 2, head_dim: 4, n_groups: 1, d_state: 4 };
    assert!(Cssd::new(shape, &[0.0; 3], &[0.0; 2], &[0.0; 2]).is_err());
    assert!(Cssd::new(shape, &[0.0; 4], &[0.0; 3], &[0.0; 2]).is_err());
    assert!(Cssd::new(shape, &[0.0; 4], &[0.0; 2], &[0.0; 1]).is_err());
    assert!(Cssd::new(CssdShape { d_state: 0, ..shape }, &[0.0; 4], &[0.0; 2], &[0.0; 2]).is_err());
}
