use std::sync::Arc;

use selkie_cpu::{DeltaRule, DeltaState, Pool, Result};
use selkie_model::reference::ops::{self, DeltaShape};

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, feed, near, to_f64},
};

#[derive(Clone)]
struct Delta {
    shape: DeltaShape,
    a_weight: Vec<f32>,
    dt_bias: Vec<f32>,
    state: DeltaState,
}

impl Delta {
    fn new(shape: DeltaShape, a_weight: Vec<f32>, dt_bias: Vec<f32>) -> Self {
        let op = DeltaRule::new(shape, &a_weight, &dt_bias).expect("sizes that fit");
        Self { shape, a_weight, dt_bias, state: DeltaState::new(Arc::new(op)) }
    }

    fn inputs(&self) -> impl Fn(&mut Random, usize) -> Vec<Vec<f32>> {
        let widths = self.widths();
        move |random, rows| {
            let mut inputs: Vec<Vec<f32>> = widths.iter().map(|width| random.values(rows * width)).collect();
            inputs[1].iter_mut().for_each(|b| *b *= 3.0);
            inputs[2].iter_mut().for_each(|a| *a = 3.0 * *a - 2.0);
            inputs
        }
    }
}

impl Layer for Delta {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = self.shape;
        vec![2 * n_k_heads * k_dim + n_v_heads * v_dim, n_v_heads, n_v_heads]
    }

    fn outputs(&self) -> usize {
        self.shape.n_v_heads * self.shape.v_dim
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        self.state.forward(pool, inputs[0], inputs[1], inputs[2], out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let (a_weight, dt_bias) = (to_f64(&self.a_weight), to_f64(&self.dt_bias));
        ops::delta_rule(&inputs[0], &inputs[1], &inputs[2], &a_weight, &dt_bias, &self.shape, &mut planes[0])
    }
}

#[test]
fn promises() {
    let mut random = Random::new(41);
    for (n_k_heads, n_v_heads, k_dim, v_dim) in [(2, 4, 16, 8), (3, 3, 5, 6), (1, 2, 32, 33)] {
        let a_weight = random.values(n_v_heads).iter().map(|v| -(2.0 * v).exp()).collect();
        let layer = Delta::new(DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim }, a_weight, random.values(n_v_heads));
        check(&format!("{n_k_heads}, {n_v_heads} x {k_dim} x {v_dim}"), &layer, 300, 2e-5, layer.inputs());
    }
}

#[test]
fn golden() {
    let golden = Golden::open("gated_delta_rule");
    for case in ["one_token", "initial_state", "plain", "long", "batch"] {
        let name = |part: &str| format!("{case}.{part}");
        let [batch, rows, heads, k_dim] = golden.shape(&name("in.key"))[..] else { panic!("four axes") };
        let v_dim = golden.shape(&name("in.value"))[3];
        let shape = DeltaShape { n_k_heads: heads, n_v_heads: heads, k_dim, v_dim };
        let fresh = Delta::new(shape, vec![-1.0; heads], vec![0.0; heads]);
        let sequences = |part: &str| golden.by_sequences(&name(part));
        for i in 0..batch {
            let [q, k, v] = ["query", "key", "value"].map(|part| sequences(&format!("in.{part}")).swap_remove(i));
            let beside = |t: usize| {
                [&q, &k, &v].iter().flat_map(|x| x[x.len() / rows * t..][..x.len() / rows].to_vec()).collect::<Vec<_>>()
            };
            // The raw values whose sigmoid is beta, and whose softplus the decay.
            let b =
                sequences("in.beta")[i].iter().map(|&beta| (beta as f64 / (1.0 - beta as f64)).ln() as f32).collect();
            let a = sequences("in.g")[i].iter().map(|&g| (-g as f64).exp_m1().ln() as f32).collect();
            let inputs = [(0..rows).flat_map(beside).collect(), b, a];
            for pool in pools() {
                let mut layer = fresh.clone();
                if golden.find(&name("in.initial_state")).is_some() {
                    layer.set_planes(&[sequences("in.initial_state").swap_remove(i)]).unwrap();
                }
                let what = format!("{case} on {}", pool.isa());
                near(&what, &feed(&mut layer, &pool, &inputs, 0..rows), &to_f64(&sequences("out.y")[i]), 1e-5);
                near(&what, &layer.planes()[0], &to_f64(&sequences("out.last_state")[i]), 1e-5);
            }
        }
    }
}

#[test]
fn refusals() {
    let shape = DeltaShape { n_k_heads: 1, n_v_heads: 2, k_dim: 4, v_dim: 4 };
    assert!(DeltaRule::new(shape, &[0.0; 1], &[0.0; 2]).is_err());
    assert!(DeltaRule::new(shape, &[0.0; 2], &[0.0; 3]).is_err());
    assert!(DeltaRule::new(DeltaShape { k_dim: 0, ..shape }, &[0.0; 2], &[0.0; 2]).is_err());
}
