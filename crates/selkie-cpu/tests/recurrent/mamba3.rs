use std::{f64::consts::TAU, sync::Arc};

use selkie_cpu::{Mamba3, Mamba3Inputs, Mamba3Parameters, Mamba3State, Pool, Result};
use selkie_model::{
    reference::ops::{self, DecayActivation, Mamba3Params, Mamba3Shape},
    rope::Pairing,
};

use crate::{
    common::{Random, pools},
    state_methods,
    support::{Golden, Layer, check, feed, near, silu, to_f64, transposed},
};

#[derive(Clone)]
struct Mixer {
    shape: Mamba3Shape,
    dt_bias: Vec<f32>,
    b_bias: Vec<f32>,
    c_bias: Vec<f32>,
    d: Vec<f32>,
    mimo_x: Option<Vec<f32>>,
    state: Mamba3State,
}

impl Mixer {
    /// `[dt_bias, b_bias, c_bias, d]`
    fn new(shape: Mamba3Shape, [dt_bias, b_bias, c_bias, d]: [Vec<f32>; 4], mimo_x: Option<Vec<f32>>) -> Self {
        let parameters =
            Mamba3Parameters { dt_bias: &dt_bias, b_bias: &b_bias, c_bias: &c_bias, d: &d, mimo_x: mimo_x.as_deref() };
        let op = Mamba3::new(shape, &parameters).expect("sizes that fit");
        Self { state: Mamba3State::new(Arc::new(op)), shape, dt_bias, b_bias, c_bias, d, mimo_x }
    }

    fn random(random: &mut Random, shape: Mamba3Shape) -> Self {
        let Mamba3Shape { n_heads, head_dim, d_state, rank, .. } = shape;
        let keys = n_heads * rank * d_state;
        let parameters = [n_heads, keys, keys, n_heads].map(|len| random.values(len));
        let mimo_x = (rank > 1).then(|| random.values(n_heads * rank * head_dim));
        Self::new(shape, parameters, mimo_x)
    }

    fn inputs(&self) -> impl Fn(&mut Random, usize) -> Vec<Vec<f32>> {
        let widths = self.widths();
        move |random, rows| {
            let mut inputs: Vec<Vec<f32>> = widths.iter().map(|width| random.values(rows * width)).collect();
            inputs[3].iter_mut().for_each(|dt| *dt = 3.0 * *dt - 2.0);
            inputs[4].iter_mut().for_each(|a| *a = 4.0 * *a - 1.0);
            inputs[5].iter_mut().for_each(|trap| *trap *= 3.0);
            inputs[6].iter_mut().for_each(|angle| *angle *= 2.0);
            inputs
        }
    }
}

impl Layer for Mixer {
    state_methods!();

    fn widths(&self) -> Vec<usize> {
        let Mamba3Shape { n_heads, head_dim, n_groups, d_state, rank, n_angles, .. } = self.shape;
        let bc = rank * n_groups * d_state;
        vec![n_heads * head_dim, bc, bc, n_heads, n_heads, n_heads, n_angles]
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.rank * self.shape.head_dim
    }

    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        let &[x, b, c, dt, a, trap, angle] = inputs else { panic!("seven inputs") };
        self.state.forward(pool, &Mamba3Inputs { x, b, c, dt, a, trap, angle }, out)
    }

    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64> {
        let [x, b, c, dt, a, trap, angle] = inputs else { panic!("seven inputs") };
        let [dt_bias, b_bias, c_bias, d] = [&self.dt_bias, &self.b_bias, &self.c_bias, &self.d].map(|x| to_f64(x));
        let mimo_x = self.mimo_x.as_ref().map(|x| to_f64(x));
        let params =
            Mamba3Params { dt_bias: &dt_bias, b_bias: &b_bias, c_bias: &c_bias, d: &d, mimo_x: mimo_x.as_deref() };
        let [turned, s, k, last] = planes else { panic!("four planes") };
        let state = ops::Mamba3State { angle: turned, s, k, x: last };
        ops::mamba3(x, b, c, dt, a, trap, angle, &params, &self.shape, state)
    }

    /// Angles a whole turn apart are the same.
    fn comparable(&self, planes: &[Vec<f64>]) -> Vec<Vec<f64>> {
        assert!(planes[0].iter().all(|angle| (-1e-5..=TAU + 1e-5).contains(angle)), "angles in one turn");
        let mut planes = planes.to_vec();
        planes[0] = planes[0].iter().flat_map(|angle| [angle.cos(), angle.sin()]).collect();
        planes
    }
}

fn shape(n_heads: usize, head_dim: usize, n_groups: usize, d_state: usize) -> Mamba3Shape {
    Mamba3Shape {
        n_heads,
        head_dim,
        n_groups,
        d_state,
        rank: 1,
        n_angles: d_state / 4,
        pairing: Pairing::Interleaved,
        a_activation: DecayActivation::HeavyTail,
        a_floor: 1e-4,
    }
}

#[test]
fn promises() {
    let mut random = Random::new(21);
    let siso = shape(4, 8, 2, 16);
    let shapes = [
        siso,
        Mamba3Shape { n_angles: 8, a_activation: DecayActivation::Softplus, ..siso },
        Mamba3Shape { n_angles: 3, pairing: Pairing::Halves, ..shape(3, 33, 1, 11) },
        Mamba3Shape { n_angles: 0, ..shape(2, 5, 1, 4) },
        Mamba3Shape { rank: 2, pairing: Pairing::Halves, ..siso },
        Mamba3Shape { rank: 3, n_angles: 5, ..shape(2, 32, 2, 12) },
        Mamba3Shape { rank: 4, a_floor: 0.5, ..siso },
    ];
    for shape in shapes {
        let layer = Mixer::random(&mut random, shape);
        check(&format!("{shape:?}"), &layer, 300, 2e-5, layer.inputs());
    }
}

/// More rows than are prepared at a time, and than a chunk.
#[test]
fn long() {
    let mut random = Random::new(22);
    let layer = Mixer::random(&mut random, shape(2, 8, 1, 8));
    let inputs = layer.inputs()(&mut random, 3000);
    let mut planes: Vec<Vec<f64>> = layer.planes().iter().map(|plane| to_f64(plane)).collect();
    let wanted = layer.definition(&mut planes, &inputs.iter().map(|x| to_f64(x)).collect::<Vec<_>>());
    for pool in pools() {
        let out = feed(&mut layer.clone(), &pool, &inputs, 0..3000);
        near(&format!("3000 rows on {}", pool.isa()), &out, &wanted, 1e-4);
    }
}

/// The raw values whose softplus, and whose rate of decay, are these.
fn raw(delta: &[f32], log_decay: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let rates = delta.iter().zip(log_decay).map(|(&delta, &decay)| -(decay as f64) / delta as f64);
    let a = rates.map(|rate| if rate < 1.0 { 1.0 - 1.0 / rate } else { rate - 1.0 } as f32);
    (delta.iter().map(|&delta| (delta as f64).exp_m1().ln() as f32).collect(), a.collect())
}

/// `[.., heads, width]` of one sequence: what one of the heads has.
fn of_head(x: &[f32], heads: usize, head: usize, width: usize) -> Vec<f32> {
    x.chunks_exact(width).skip(head).step_by(heads).flatten().copied().collect()
}

/// Heads have angles of their own in these files, so each is a layer; gates and sums over ranks are ops of their own.
#[test]
fn golden() {
    for (file, cases, mimo) in [
        ("mamba3_siso", &["all", "half_rope", "initial_states", "one_token", "plain"][..], false),
        ("mamba3_mimo", &["halves", "half_rope_halves", "pairs"], true),
    ] {
        let golden = Golden::open(file);
        for case in cases {
            let lower = |what: &str| if mimo && what != "D" { what.to_lowercase() } else { what.to_owned() };
            let name = |what: &str| format!("{case}.in.{}", lower(what));
            let [batch, rows, n_heads, head_dim] = golden.shape(&name("V"))[..] else { panic!("four axes") };
            let keys = golden.shape(&name("Q"));
            let (rank, groups, d_state) = (if mimo { keys[2] } else { 1 }, keys[keys.len() - 2], keys[keys.len() - 1]);
            let n_angles = golden.shape(&name("Angles"))[3];
            let pairing = if case.contains("halves") { Pairing::Halves } else { Pairing::Interleaved };
            let shape = Mamba3Shape { n_angles, rank, pairing, ..shape(1, head_dim, 1, d_state) };
            for (i, head) in (0..batch).flat_map(|i| (0..n_heads).map(move |head| (i, head))) {
                let of = |what: &str| golden.by_sequences(&name(what)).swap_remove(i);
                let own = |what: &str, each: usize| golden.get(&name(what))[head * each..][..each].to_vec();
                let d = golden.find(&name("D")).map_or(vec![0.0], |d| vec![d[head]]);
                let biases = [own("K_bias", rank * d_state), own("Q_bias", rank * d_state)];
                let [b_bias, c_bias] = biases;
                let mimo_x = mimo.then(|| own("mimo_v", rank * head_dim));
                let layer = Mixer::new(shape, [vec![0.0], b_bias, c_bias, d], mimo_x);
                let bc = |what: &str| of_head(&of(what), groups, head * groups / n_heads, d_state);
                let scalars = |what: &str| of(what)[head * rows..][..rows].to_vec();
                let (dt, a) = raw(&scalars("DT"), &scalars("ADT"));
                let inputs = [
                    of_head(&of("V"), n_heads, head, head_dim),
                    bc("K"),
                    bc("Q"),
                    dt,
                    a,
                    scalars("Trap"),
                    of_head(&of("Angles"), n_heads, head, n_angles),
                ];
                let state = |kind: &str, what: &str| -> Option<Vec<f32>> {
                    let name = format!("{case}.{kind}.{what}_state");
                    golden.find(&name)?;
                    let all = golden.by_sequences(&name).swap_remove(i);
                    Some(all[head * (all.len() / n_heads)..][..all.len() / n_heads].to_vec())
                };
                for pool in pools() {
                    let what = &format!("{file}, {case}, head {head} on {}", pool.isa());
                    let mut layer = layer.clone();
                    if let Some(angle) = state("in", "angle") {
                        let [s, k, x] = ["ssm", "k", "v"].map(|what| state("in", what).expect("a state"));
                        layer.set_planes(&[angle, s, k, x]).unwrap();
                    }
                    let mut y = feed(&mut layer, &pool, &inputs, 0..rows);
                    if let Some(z) = golden.find(&name("Z")).map(|_| of_head(&of("Z"), n_heads, head, head_dim)) {
                        let len = rank * head_dim;
                        let [mimo_z, mimo_o] =
                            ["mimo_z", "mimo_o"].map(|by| if mimo { own(by, len) } else { vec![1.0; len] });
                        let at = |t: usize, r: usize, p: usize| {
                            let z = mimo_z[r * head_dim + p] * z[t * head_dim + p];
                            mimo_o[r * head_dim + p] * y[(t * rank + r) * head_dim + p] * silu(z as f64) as f32
                        };
                        let sum = |i: usize| (0..rank).map(|r| at(i / head_dim, r, i % head_dim)).sum::<f32>();
                        y = (0..rows * head_dim).map(sum).collect();
                    }
                    let wanted = of_head(&golden.by_sequences(&format!("{case}.out.y"))[i], n_heads, head, head_dim);
                    near(what, &y, &to_f64(&wanted), 1e-5);
                    let planes = layer.planes();
                    // The file with several ranks has its states the other way round.
                    let s = state("out", "ssm").expect("a state");
                    let s = if mimo { transposed(&s, head_dim) } else { s };
                    near(what, &planes[1], &to_f64(&s), 1e-5);
                    if let [Some(k), Some(x)] = ["k", "v"].map(|what| state("out", what)) {
                        near(what, &planes[2], &to_f64(&k), 1e-5);
                        near(what, &planes[3], &to_f64(&x), 1e-6);
                    }
                }
            }
        }
    }
}

#[test]
fn refusals() {
    let layer = Mixer::random(&mut Random::new(23), shape(2, 4, 1, 8));
    let parameters =
        |dt_bias| Mamba3Parameters { dt_bias, b_bias: &layer.b_bias, c_bias: &layer.c_bias, d: &layer.d, mimo_x: None };
    let make = |shape: Mamba3Shape| Mamba3::new(shape, &parameters(&layer.dt_bias));
    assert!(make(layer.shape).is_ok());
    assert!(make(Mamba3Shape { n_angles: 5, ..layer.shape }).is_err());
    assert!(make(Mamba3Shape { rank: 0, ..layer.shape }).is_err());
    assert!(make(Mamba3Shape { rank: 2, ..layer.shape }).is_err());
    assert!(make(Mamba3Shape { d_state: 16, ..layer.shape }).is_err());
    assert!(Mamba3::new(layer.shape, &parameters(&[0.0])).is_err());
}
