use std::sync::Arc;

use selkie_cpu::{CausalConv, ConvState, Pool, Result};

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, near, silu, to_f64, transposed},
};

#[derive(Clone)]
struct Conv {
    channels: usize,
    width: usize,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    silu: bool,
    state: ConvState,
}

impl Conv {
    fn new(channels: usize, width: usize, weight: Vec<f32>, bias: Option<Vec<f32>>, silu: bool) -> Self {
        let op = CausalConv::new(channels, width, &weight, bias.as_deref(), silu).expect("sizes that fit");
        Self { channels, width, weight, bias, silu, state: ConvState::new(Arc::new(op)) }
    }
}

impl Layer for Conv {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        vec![self.channels]
    }

    fn outputs(&self) -> usize {
        self.channels
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        self.state.forward(pool, inputs[0], out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let mut all = planes[0].clone();
        all.extend(&inputs[0]);
        let mut out = Vec::new();
        for t in 0..inputs[0].len() / self.channels {
            for c in 0..self.channels {
                let taps =
                    (0..self.width).map(|k| self.weight[c * self.width + k] as f64 * all[(t + k) * self.channels + c]);
                let sum = self.bias.as_ref().map_or(0.0, |bias| bias[c] as f64) + taps.sum::<f64>();
                out.push(if self.silu { silu(sum) } else { sum });
            }
        }
        planes[0] = all.split_off(inputs[0].len());
        out
    }
}

#[test]
fn golden() {
    let golden = Golden::open("causal_conv1d");
    for (case, silu) in
        [("plain", false), ("silu_bias", true), ("short", true), ("one_token", true), ("initial_state", true)]
    {
        let name = |part: &str| format!("{case}.{part}");
        let &[channels, width] = &golden.shape(&name("in.weight"))[..] else { panic!("two axes") };
        let make = || Conv::new(channels, width, golden.get(&name("in.weight")), golden.find(&name("in.bias")), silu);
        let (wanted, last) = (golden.by_tokens(&name("out.y")), golden.by_tokens(&name("out.last_state")));
        let first = golden.find(&name("in.initial_state")).map(|_| golden.by_tokens(&name("in.initial_state")));
        for pool in pools() {
            let what = format!("{case} on {}", pool.isa());
            for (i, x) in golden.by_tokens(&name("in.x")).iter().enumerate() {
                let mut layer = make();
                if let Some(first) = &first {
                    layer.set_planes(&[first[i].clone()]).unwrap();
                }
                let mut out = vec![0.0; x.len()];
                layer.forward(&pool, &[x], &mut out).unwrap();
                near(&what, &out, &to_f64(&wanted[i]), 1e-6);
                near(&what, &layer.planes()[0], &to_f64(&last[i]), 1e-6);
            }
        }
    }
}

#[test]
fn packed() {
    let golden = Golden::open("causal_conv1d");
    let ids = golden.ints("packed.in.seq_idx");
    let (x, wanted) = (&golden.by_tokens("packed.in.x")[0], &golden.by_tokens("packed.out.y")[0]);
    let fresh = Conv::new(3, 4, golden.get("packed.in.weight"), golden.find("packed.in.bias"), true);
    for pool in pools() {
        let mut layer = fresh.clone();
        let mut out = vec![0.0; x.len()];
        for t in 0..ids.len() {
            if t > 0 && ids[t] != ids[t - 1] {
                layer = fresh.clone();
            }
            layer.forward(&pool, &[&x[3 * t..][..3]], &mut out[3 * t..][..3]).unwrap();
        }
        near("packed", &out, &to_f64(wanted), 1e-6);
    }
}

#[test]
fn promises() {
    let mut random = Random::new(7);
    for (channels, width, bias, silu) in
        [(5, 4, true, true), (37, 3, false, false), (64, 1, true, true), (16, 16, false, true)]
    {
        let weight = random.values(channels * width);
        let bias = bias.then(|| random.values(channels));
        let layer = Conv::new(channels, width, weight, bias, silu);
        if width > 1 {
            check(&format!("{channels} x {width}"), &layer, 300, 1e-6, |random, rows| {
                vec![random.values(rows * channels)]
            });
        }
    }
}

#[test]
fn many_rows_are_shared_out() {
    let mut random = Random::new(8);
    let layer = Conv::new(1792, 4, random.values(1792 * 4), Some(random.values(1792)), true);
    let x = random.values(100 * 1792);
    for pool in pools() {
        let mut out = vec![0.0; x.len()];
        layer.clone().forward(&pool, &[&x], &mut out).unwrap();
        near("100 rows", &out, &layer.definition(&mut [vec![0.0; 3 * 1792]], &[to_f64(&x)]), 1e-6);
    }
}

#[test]
fn refusals() {
    assert!(CausalConv::new(4, 0, &[], None, false).is_err());
    assert!(CausalConv::new(0, 4, &[], None, false).is_err());
    assert!(CausalConv::new(4, 17, &[0.0; 68], None, false).is_err());
    assert!(CausalConv::new(4, 3, &[0.0; 11], None, false).is_err());
    assert!(CausalConv::new(4, 3, &[0.0; 12], Some(&[0.0; 3]), false).is_err());
    assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}
