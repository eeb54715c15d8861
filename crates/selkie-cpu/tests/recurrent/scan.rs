use std::sync::Arc;

use selkie_cpu::{Pool, Result, ScanState, SelectiveScan};
use selkie_model::reference::ops::InputRule;

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, feed, near, silu, softplus, to_f64, transposed},
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

/// One sequence of a golden case, by tokens.
struct Sequence {
    a: Vec<f32>,
    d: Vec<f32>,
    /// x, dt with its bias, B, C.
    inputs: [Vec<f32>; 4],
    gate: Option<Vec<f32>>,
    first: Option<Vec<f32>>,
    y: Vec<f32>,
    last: Vec<f32>,
}

impl Sequence {
    /// Some of the channels as a sequence of their own: those that share one group of B and C.
    fn group(&self, group: usize, groups: usize) -> Self {
        let part = |x: &[f32], columns: usize| -> Vec<f32> {
            let width = columns / groups;
            x.chunks(columns).flat_map(|row| row[group * width..][..width].to_vec()).collect()
        };
        let channels = self.d.len();
        let rows = self.inputs[0].len() / channels;
        let all = |x: &[f32]| part(x, x.len());
        let by_row = |x: &Vec<f32>| part(x, x.len() / rows);
        Self {
            a: all(&self.a),
            d: all(&self.d),
            inputs: self.inputs.each_ref().map(by_row),
            gate: self.gate.as_ref().map(by_row),
            first: self.first.as_ref().map(|x| all(x)),
            y: by_row(&self.y),
            last: all(&self.last),
        }
    }

    fn check(&self, what: &str) {
        let channels = self.d.len();
        let d_state = self.a.len() / channels;
        let fresh = Scan::new(channels, d_state, InputRule::Euler, self.a.clone(), self.d.clone());
        for pool in pools() {
            let mut layer = fresh.clone();
            if let Some(first) = &self.first {
                layer.set_planes(std::slice::from_ref(first)).unwrap();
            }
            let mut out = feed(&mut layer, &pool, &self.inputs, 0..self.y.len() / channels);
            if let Some(gate) = &self.gate {
                out.iter_mut().zip(gate).for_each(|(out, &z)| *out *= silu(z as f64) as f32);
            }
            let what = format!("{what} on {}", pool.isa());
            near(&what, &out, &to_f64(&self.y), 2e-6);
            near(&what, &layer.planes()[0], &to_f64(&self.last), 2e-6);
        }
    }
}

/// The gate, where there is one, is an op of its own here, and so is each group of B and C.
#[test]
fn golden() {
    let golden = Golden::open("selective_scan");
    for case in ["all", "initial_state", "long", "one_token", "groups", "plain"] {
        let name = |part: &str| format!("{case}.{part}");
        let [batch, channels, rows] = golden.shape(&name("in.u"))[..] else { panic!("three axes") };
        let groups = if case == "groups" { 2 } else { 1 };
        // The last axis is time.
        let by_tokens = |part: &str| -> Option<Vec<Vec<f32>>> {
            golden.find(&name(part))?;
            Some(golden.by_sequences(&name(part)).iter().map(|x| transposed(x, rows)).collect())
        };
        let by_sequences = |part: &str| golden.find(&name(part)).map(|_| golden.by_sequences(&name(part)));
        let [x, dt, b, c] = ["in.u", "in.delta", "in.B", "in.C"].map(|part| by_tokens(part).expect(part));
        let bias = golden.find(&name("in.delta_bias"));
        for i in 0..batch {
            let dt = dt[i].iter().enumerate().map(|(k, &dt)| match &bias {
                Some(bias) => dt + bias[k % channels],
                // This case has its steps without a softplus: what gives them.
                None => (dt as f64).exp_m1().ln() as f32,
            });
            let sequence = Sequence {
                a: golden.get(&name("in.A")),
                d: golden.find(&name("in.D")).unwrap_or(vec![0.0; channels]),
                inputs: [x[i].clone(), dt.collect(), b[i].clone(), c[i].clone()],
                gate: by_tokens("in.z").map(|z| z[i].clone()),
                first: by_sequences("in.initial_state").map(|first| first[i].clone()),
                y: by_tokens("out.y").expect("y")[i].clone(),
                last: by_sequences("out.last_state").expect("a state")[i].clone(),
            };
            (0..groups).for_each(|group| sequence.group(group, groups).check(case));
        }
    }
}

/// Single steps, of Mamba-1 and of a layer in heads whose channels all have their own A.
#[test]
fn golden_steps() {
    let golden = Golden::open("selective_state_update");
    for case in ["mamba1", "heads", "groups"] {
        let part = |part: &str| golden.get(&format!("{case}.in.{part}"));
        let sequences = |part: &str| golden.by_sequences(&format!("{case}.{part}"));
        let groups = golden.shape(&format!("{case}.in.B"))[1];
        let bias = part("dt_bias");
        for i in 0..golden.shape(&format!("{case}.in.x"))[0] {
            let dt = sequences("in.dt")[i].iter().zip(&bias).map(|(dt, bias)| dt + bias).collect();
            let sequence = Sequence {
                a: part("A"),
                d: part("D"),
                inputs: [sequences("in.x")[i].clone(), dt, sequences("in.B")[i].clone(), sequences("in.C")[i].clone()],
                gate: Some(sequences("in.z")[i].clone()),
                first: Some(sequences("in.state")[i].clone()),
                y: sequences("out.y")[i].clone(),
                last: sequences("out.state")[i].clone(),
            };
            (0..groups).for_each(|group| sequence.group(group, groups).check(case));
        }
    }
}

/// Several sequences in one row: a fresh state for each.
#[test]
fn packed() {
    let golden = Golden::open("selective_scan");
    let tokens = |part: &str| golden.by_tokens(&format!("packed.{part}")).remove(0);
    let (bias, ids) = (golden.get("packed.in.delta_bias"), golden.ints("packed.in.seq_idx"));
    let dt: Vec<f32> = tokens("in.delta").iter().enumerate().map(|(i, dt)| dt + bias[i % 4]).collect();
    let fresh = Scan::new(4, 3, InputRule::Euler, golden.get("packed.in.A"), golden.get("packed.in.D"));
    let inputs = [tokens("in.u"), dt, tokens("in.B"), tokens("in.C")];
    for pool in pools() {
        let (mut out, mut states) = (Vec::new(), Vec::new());
        for id in 0..3 {
            let rows = ids.iter().position(|&i| i == id).unwrap()..ids.iter().rposition(|&i| i == id).unwrap() + 1;
            let mut layer = fresh.clone();
            out.extend(feed(&mut layer, &pool, &inputs, rows));
            states.extend(layer.planes().remove(0));
        }
        out.iter_mut().zip(tokens("in.z")).for_each(|(out, z)| *out *= silu(z as f64) as f32);
        near("packed", &out, &to_f64(&tokens("out.y")), 2e-6);
        near("packed", &states, &to_f64(&golden.get("packed.out.last_states")), 2e-6);
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
