use std::sync::Arc;

use selkie_cpu::{InputRule, Pool, Result, ScanState, SelectiveScan};

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, near, silu, softplus, to_f64},
};

#[derive(Clone)]
struct Scan {
    channels: usize,
    d_state: usize,
    rule: InputRule,
    a: Vec<f32>,
    d: Vec<f32>,
    state: ScanState,
}

impl Scan {
    fn new(channels: usize, d_state: usize, rule: InputRule, a: Vec<f32>, d: Vec<f32>) -> Self {
        let op = SelectiveScan::new(channels, d_state, rule, &a, &d).expect("sizes that fit");
        Self { channels, d_state, rule, a, d, state: ScanState::new(Arc::new(op)) }
    }

    fn random(random: &mut Random, channels: usize, d_state: usize, rule: InputRule) -> Self {
        let a = random.values(channels * d_state).iter().map(|v| -(3.0 * v).exp()).collect();
        Self::new(channels, d_state, rule, a, random.values(channels))
    }

    fn inputs(&self) -> impl Fn(&mut Random, usize) -> Vec<Vec<f32>> {
        let (channels, d_state) = (self.channels, self.d_state);
        move |random, rows| {
            let x = random.values(rows * channels);
            let dt = random.values(rows * channels).iter().map(|v| 4.0 * v - 3.0).collect();
            vec![x, dt, random.values(rows * d_state), random.values(rows * d_state)]
        }
    }
}

impl Layer for Scan {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        vec![self.channels, self.channels, self.d_state, self.d_state]
    }

    fn outputs(&self) -> usize {
        self.channels
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        self.state.forward(pool, inputs[0], inputs[1], inputs[2], inputs[3], out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let (channels, d_state) = (self.channels, self.d_state);
        let [x, dt, b, c] = inputs else { panic!("four inputs") };
        let mut out = Vec::new();
        for (i, (&x, &dt)) in x.iter().zip(dt).enumerate() {
            let (t, channel) = (i / channels, i % channels);
            let dt = softplus(dt);
            let mut y = self.d[channel] as f64 * x;
            for n in 0..d_state {
                let a = self.a[channel * d_state + n] as f64;
                let gain = match self.rule {
                    InputRule::Euler => dt,
                    InputRule::ZeroOrderHold => (dt * a).exp_m1() / a,
                };
                let h = &mut planes[0][channel * d_state + n];
                *h = (dt * a).exp() * *h + gain * b[t * d_state + n] * x;
                y += c[t * d_state + n] * *h;
            }
            out.push(y);
        }
        out
    }
}

/// The cases of one group of B and C; their gate, where there is one, is an op of its own here.
#[test]
fn golden() {
    let golden = Golden::open("selective_scan");
    for case in ["all", "initial_state", "long", "one_token"] {
        let name = |part: &str| format!("{case}.{part}");
        let &[channels, d_state] = &golden.shape(&name("in.A"))[..] else { panic!("two axes") };
        let fresh =
            Scan::new(channels, d_state, InputRule::Euler, golden.get(&name("in.A")), golden.get(&name("in.D")));
        let bias = golden.get(&name("in.delta_bias"));
        let [x, dt, b, c] = ["u", "delta", "B", "C"].map(|part| golden.by_tokens(&name(&format!("in.{part}"))));
        let gate = golden.find(&name("in.z")).map(|_| golden.by_tokens(&name("in.z")));
        let wanted = golden.by_tokens(&name("out.y"));
        let first = golden.find(&name("in.initial_state")).map(|_| golden.by_sequences(&name("in.initial_state")));
        let last = golden.by_sequences(&name("out.last_state"));
        for pool in pools() {
            for i in 0..x.len() {
                let mut layer = fresh.clone();
                if let Some(first) = &first {
                    layer.set_planes(&[first[i].clone()]).unwrap();
                }
                let dt: Vec<f32> = dt[i].iter().enumerate().map(|(k, dt)| dt + bias[k % channels]).collect();
                let mut out = vec![0.0; x[i].len()];
                layer.forward(&pool, &[&x[i], &dt, &b[i], &c[i]], &mut out).unwrap();
                if let Some(gate) = &gate {
                    out.iter_mut().zip(&gate[i]).for_each(|(out, &z)| *out *= silu(z as f64) as f32);
                }
                let what = format!("{case} on {}", pool.isa());
                near(&what, &out, &to_f64(&wanted[i]), 2e-6);
                near(&what, &layer.planes()[0], &to_f64(&last[i]), 2e-6);
            }
        }
    }
}

#[test]
fn promises() {
    let mut random = Random::new(3);
    for rule in [InputRule::Euler, InputRule::ZeroOrderHold] {
        for (channels, d_state) in [(5, 3), (48, 16), (70, 8)] {
            let layer = Scan::random(&mut random, channels, d_state, rule);
            check(&format!("{rule:?} {channels} x {d_state}"), &layer, 200, 5e-6, layer.inputs());
        }
    }
}

/// Extreme steps and decays stay finite and right.
#[test]
fn extremes() {
    for rule in [InputRule::Euler, InputRule::ZeroOrderHold] {
        let a = vec![-1e-7, -1.0, -200.0, 0.0, -1e-3, -30.0];
        let layer = Scan::new(2, 3, rule, a.clone(), vec![1.0, 0.0]);
        let mut defined = layer.clone();
        // The limit of the rule at no decay is what a very small decay gives in f64.
        defined.a[3] = -1e-9;
        let dt =
            [-100.0, -20.0, -3.0, 0.0, 3.0, 30.0, 200.0, -1.0].iter().flat_map(|&dt| [dt, dt]).collect::<Vec<f32>>();
        let x: Vec<f32> = (0..16).map(|i| 1.0 - i as f32 * 0.2).collect();
        let b: Vec<f32> = (0..24).map(|i| (i % 5) as f32 - 1.5).collect();
        let c: Vec<f32> = (0..24).map(|i| (i % 7) as f32 - 2.5).collect();
        let wanted = defined.definition(&mut [vec![0.0; 6]], &[&x, &dt, &b, &c].map(|x| to_f64(x)));
        for pool in pools() {
            let mut out = vec![0.0; 16];
            layer.clone().forward(&pool, &[&x, &dt, &b, &c], &mut out).unwrap();
            // Row by row: they differ much in size.
            for (t, out) in out.chunks(2).enumerate() {
                near(&format!("{rule:?} row {t} on {}", pool.isa()), out, &wanted[2 * t..2 * t + 2], 2e-6);
            }
        }
    }
}

#[test]
fn refusals() {
    assert!(SelectiveScan::new(0, 4, InputRule::Euler, &[], &[]).is_err());
    assert!(SelectiveScan::new(4, 0, InputRule::Euler, &[], &[0.0; 4]).is_err());
    assert!(SelectiveScan::new(4, 2, InputRule::Euler, &[0.0; 7], &[0.0; 4]).is_err());
    assert!(SelectiveScan::new(4, 2, InputRule::Euler, &[0.0; 8], &[0.0; 3]).is_err());
}
