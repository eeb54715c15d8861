use std::sync::Arc;

use selkie_cpu::{Pool, Result, Ssd, SsdState};
use selkie_model::reference::ops::SsdShape;

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, feed, near, silu, softplus, to_f64},
};

#[derive(Clone)]
pub struct Heads {
    shape: SsdShape,
    a: Vec<f32>,
    d: Vec<f32>,
    dt_bias: Option<Vec<f32>>,
    state: SsdState,
}

pub fn shape(n_heads: usize, head_dim: usize, n_groups: usize, d_state: usize) -> SsdShape {
    SsdShape { n_heads, head_dim, n_groups, d_state, scale_input: true, dt_min: 0.0, dt_max: f32::INFINITY }
}

impl Heads {
    fn new(shape: SsdShape, a: Vec<f32>, d: Vec<f32>, dt_bias: Option<Vec<f32>>) -> Self {
        let op = Ssd::new(shape, &a, &d, dt_bias.as_deref()).expect("sizes that fit");
        Self { shape, a, d, dt_bias, state: SsdState::new(Arc::new(op)) }
    }

    fn random(random: &mut Random, shape: SsdShape) -> Self {
        let heads = shape.n_heads;
        let a = random.values(heads).iter().map(|v| -(2.5 * v).exp()).collect();
        Self::new(shape, a, random.values(heads), Some(random.values(heads)))
    }

    fn inputs(&self) -> impl Fn(&mut Random, usize) -> Vec<Vec<f32>> {
        let (widths, heads) = (self.widths(), self.shape.n_heads);
        move |random, rows| {
            let dt = random.values(rows * heads).iter().map(|v| 4.0 * v - 2.0).collect();
            vec![random.values(rows * widths[0]), dt]
        }
    }
}

impl Layer for Heads {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        let SsdShape { n_heads, head_dim, n_groups, d_state, .. } = self.shape;
        vec![n_heads * head_dim + 2 * n_groups * d_state, n_heads]
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.head_dim
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        self.state.forward(pool, inputs[0], inputs[1], out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let SsdShape { n_heads, head_dim, n_groups, d_state, scale_input, dt_min, dt_max } = self.shape;
        let mut out = Vec::new();
        for (xbc, dt) in inputs[0].chunks(self.widths()[0]).zip(inputs[1].chunks(n_heads)) {
            let (x, bc) = xbc.split_at(n_heads * head_dim);
            let (b, c) = bc.split_at(n_groups * d_state);
            for h in 0..n_heads {
                let bias = self.dt_bias.as_ref().map_or(0.0, |bias| bias[h] as f64);
                let dt = softplus(dt[h] + bias).clamp(dt_min as f64, dt_max as f64);
                let (decay, gain) = ((dt * self.a[h] as f64).exp(), if scale_input { dt } else { 1.0 });
                let group = h * n_groups / n_heads * d_state;
                for p in h * head_dim..(h + 1) * head_dim {
                    let mut y = self.d[h] as f64 * x[p];
                    for n in 0..d_state {
                        let s = &mut planes[0][p * d_state + n];
                        *s = decay * *s + gain * x[p] * b[group + n];
                        y += *s * c[group + n];
                    }
                    out.push(y);
                }
            }
        }
        out
    }
}

/// A row of x, B and C beside each other.
fn beside(parts: [&[f32]; 3], rows: usize) -> Vec<f32> {
    (0..rows).flat_map(|t| parts.map(|x| &x[x.len() / rows * t..x.len() / rows * (t + 1)]).concat()).collect()
}

fn golden_layer(golden: &Golden, case: &str, limit: Option<(f32, f32)>) -> Heads {
    let name = |part: &str| format!("{case}.in.{part}");
    let &[_, _, n_heads, head_dim] = &golden.shape(&name("x"))[..] else { panic!("four axes") };
    let &[_, _, n_groups, d_state] = &golden.shape(&name("B"))[..] else { panic!("four axes") };
    let mut shape = shape(n_heads, head_dim, n_groups, d_state);
    (shape.dt_min, shape.dt_max) = limit.unwrap_or((shape.dt_min, shape.dt_max));
    let d = golden.find(&name("D")).unwrap_or(vec![0.0; n_heads]);
    Heads::new(shape, golden.get(&name("A")), d, golden.find(&name("dt_bias")))
}

/// The gate, where there is one, is an op of its own here.
#[test]
fn golden() {
    let golden = Golden::open("ssd");
    for case in ["all", "initial_state", "long", "groups", "dt_limit", "remainder", "plain", "one_token"] {
        let name = |part: &str| format!("{case}.{part}");
        let fresh = golden_layer(&golden, case, (case == "dt_limit").then_some((0.3, 0.9)));
        let [x, b, c, dt] = ["x", "B", "C", "dt"].map(|part| golden.by_sequences(&name(&format!("in.{part}"))));
        let sequences = |part: &str| golden.find(&name(part)).map(|_| golden.by_sequences(&name(part)));
        let (gate, first) = (sequences("in.z"), sequences("in.initial_state"));
        let (wanted, last) = (sequences("out.y").unwrap(), sequences("out.last_state").unwrap());
        for pool in pools() {
            for i in 0..x.len() {
                let mut layer = fresh.clone();
                if let Some(first) = &first {
                    layer.set_planes(&[first[i].clone()]).unwrap();
                }
                let rows = golden.shape(&name("in.x"))[1];
                let inputs = [beside([&x[i], &b[i], &c[i]], rows), dt[i].clone()];
                let mut out = feed(&mut layer, &pool, &inputs, 0..rows);
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
fn packed() {
    let golden = Golden::open("ssd");
    let fresh = golden_layer(&golden, "packed", None);
    let [x, b, c, dt] = ["x", "B", "C", "dt"].map(|part| golden.get(&format!("packed.in.{part}")));
    let inputs = [beside([&x, &b, &c], 15), dt];
    let gate = golden.get("packed.in.z");
    let ids = golden.ints("packed.in.seq_idx");
    for pool in pools() {
        let mut out = Vec::new();
        let mut states = Vec::new();
        for id in 0..3 {
            let rows = ids.iter().position(|&i| i == id).unwrap()..ids.iter().rposition(|&i| i == id).unwrap() + 1;
            let mut layer = fresh.clone();
            out.extend(feed(&mut layer, &pool, &inputs, rows));
            states.extend(layer.planes().remove(0));
        }
        out.iter_mut().zip(&gate).for_each(|(out, &z)| *out *= silu(z as f64) as f32);
        near("packed", &out, &to_f64(&golden.get("packed.out.y")), 2e-6);
        near("packed", &states, &to_f64(&golden.get("packed.out.last_states")), 2e-6);
    }
}

#[test]
fn promises() {
    let mut random = Random::new(11);
    for (n_heads, head_dim, n_groups, d_state, scale_input) in
        [(4, 8, 1, 16, true), (6, 5, 4, 3, true), (3, 64, 3, 20, false), (2, 33, 2, 9, true)]
    {
        let shape = SsdShape { scale_input, ..shape(n_heads, head_dim, n_groups, d_state) };
        let layer = Heads::random(&mut random, shape);
        check(&format!("{n_heads} x {head_dim} x {d_state}"), &layer, 400, 1e-5, layer.inputs());
    }
}

/// A step that forgets everything, then many that forget little: sums of decays must not lose those.
#[test]
fn strong_decays() {
    let mut random = Random::new(12);
    let layer = Heads::new(shape(2, 4, 1, 8), vec![-1.0, -16.0], vec![0.0, 0.0], None);
    let mut inputs = layer.inputs()(&mut random, 128);
    for (t, dt) in inputs[1].chunks_mut(2).enumerate() {
        dt.fill(if t % 8 < 3 { 60.0 } else { -6.0 });
    }
    for pool in pools() {
        let mut definition = vec![vec![0.0; 64]];
        let wanted = layer.definition(&mut definition, &inputs.iter().map(|x| to_f64(x)).collect::<Vec<_>>());
        let out = feed(&mut layer.clone(), &pool, &inputs, 0..128);
        // Head by head, since rows differ much in size.
        for (i, (out, wanted)) in out.chunks(4).zip(wanted.chunks(4)).enumerate() {
            near(&format!("row {} on {}", i / 2, pool.isa()), out, wanted, 1e-4);
        }
    }
}

/// A long text: nothing drifts, neither in chunks nor step by step.
#[test]
fn thirty_two_thousand_tokens() {
    let mut random = Random::new(13);
    let shape = shape(2, 16, 1, 16);
    let layer = Heads::new(shape, vec![-0.02, -1.0], vec![1.0; 2], None);
    let rows = 32 << 10;
    let inputs = layer.inputs()(&mut random, rows);
    let mut planes = vec![vec![0.0; 512]];
    let wanted = layer.definition(&mut planes, &inputs.iter().map(|x| to_f64(x)).collect::<Vec<_>>());
    let pool = Pool::new(2);
    let (mut whole, mut steps) = (layer.clone(), layer);
    let last = |out: &[f32]| out[out.len() - 32 * 64..].to_vec();
    near("in chunks", &last(&feed(&mut whole, &pool, &inputs, 0..rows)), &wanted[wanted.len() - 32 * 64..], 1e-5);
    let stepped: Vec<f32> = (0..rows).flat_map(|t| feed(&mut steps, &pool, &inputs, t..t + 1)).collect();
    near("in steps", &last(&stepped), &wanted[wanted.len() - 32 * 64..], 1e-5);
    near("state", &whole.planes()[0], &planes[0], 1e-5);
    near("state", &steps.planes()[0], &planes[0], 1e-5);
}

#[test]
fn refusals() {
    let ones = [1.0; 4];
    assert!(Ssd::new(shape(0, 4, 1, 4), &[], &[], None).is_err());
    assert!(Ssd::new(shape(4, 4, 0, 4), &ones, &ones, None).is_err());
    assert!(Ssd::new(shape(4, 4, 1, 4), &ones[1..], &ones, None).is_err());
    assert!(Ssd::new(shape(4, 4, 1, 4), &ones, &ones[1..], None).is_err());
    assert!(Ssd::new(shape(4, 4, 1, 4), &ones, &ones, Some(&ones[1..])).is_err());
}
