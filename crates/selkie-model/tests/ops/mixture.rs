//! A mixture's gradients against finite differences, for weights that learn and over stored blocks.

use selkie_formats::DType;
use selkie_model::{
    LoadedWeights, WeightId,
    reference::ops::*,
    spec::{Activation, ExpertBiases, Gating, Mixture, Routing, Score},
};

use crate::support::{Seeded, check_gradient_with, dot, stored};

const RENORMALISED: Routing =
    Routing { score: Score::Softmax, choice_bias: None, groups: None, renormalise: true, scale: 1.0 };
const MIXTURE: Mixture = Mixture {
    router: WeightId(0),
    router_bias: None,
    gate: Some(WeightId(1)),
    up: WeightId(2),
    down: WeightId(3),
    biases: None,
    gating: Gating::Plain(Activation::Silu),
    n_experts: 4,
    n_used: 2,
    d_ff: 32,
    routing: RENORMALISED,
};
const D_MODEL: usize = 32;
const ROWS: usize = 2;

/// Router, gate, up and down, each row after row.
fn values(seeded: &mut Seeded) -> [Vec<f64>; 4] {
    let stack = MIXTURE.n_experts * MIXTURE.d_ff * D_MODEL;
    [MIXTURE.n_experts * D_MODEL, stack, stack, stack].map(|n| seeded.values(n))
}

fn weights(values: &[Vec<f64>; 4], dtype: DType) -> LoadedWeights {
    let Mixture { n_experts, d_ff, .. } = MIXTURE;
    let shapes = [
        vec![n_experts, D_MODEL],
        vec![n_experts, d_ff, D_MODEL],
        vec![n_experts, d_ff, D_MODEL],
        vec![n_experts, D_MODEL, d_ff],
    ];
    let store = |(values, shape): (&Vec<f64>, Vec<usize>)| {
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        stored(if shape.len() == 2 { DType::F32 } else { dtype }, &shape, &values)
    };
    values.iter().zip(shapes).map(store).collect()
}

#[test]
fn of_its_input() {
    let mut seeded = Seeded(20);
    let values = values(&mut seeded);
    let (x, dy) = (seeded.values(ROWS * D_MODEL), seeded.values(ROWS * D_MODEL));
    for dtype in [DType::F32, DType::Q8_0, DType::Q4_0] {
        let weights = weights(&values, dtype);
        let d = mixture_backward(&x, &MIXTURE, &weights, &dy).expect("gradients");
        check_gradient_with(&format!("x over {dtype}"), &x, &d.x, 2f64.powi(-9), 1e-7, |x| {
            dot(&mixture(x, &MIXTURE, &weights).expect("y"), &dy)
        });
    }
}

#[test]
fn of_its_weights() {
    let mut seeded = Seeded(21);
    let all = values(&mut seeded);
    let (x, dy) = (seeded.values(ROWS * D_MODEL), seeded.values(ROWS * D_MODEL));
    let loss = |at: usize, expert: Option<usize>, moved: &[f64]| {
        let mut all = all.clone();
        let start = expert.map_or(0, |e| e * moved.len());
        all[at][start..start + moved.len()].copy_from_slice(moved);
        dot(&mixture(&x, &MIXTURE, &weights(&all, DType::F32)).expect("y"), &dy)
    };
    let d = mixture_backward(&x, &MIXTURE, &weights(&all, DType::F32), &dy).expect("gradients");
    // Steps of f32 values must be exact in f32.
    let step = 2f64.powi(-9);
    check_gradient_with("router", &all[0], &d.router, step, 1e-7, |w| loss(0, None, w));
    let used: Vec<usize> = d.experts.keys().copied().collect();
    assert!(used.len() >= 2 && used.len() <= ROWS * MIXTURE.n_used);
    let (&expert, gradients) = d.experts.iter().next().expect("an expert");
    for (at, gradient) in [(1, &gradients.gate), (2, &gradients.up), (3, &gradients.down)] {
        let own = &all[at][expert * gradient.len()..][..gradient.len()];
        check_gradient_with(&format!("weight {at}"), own, gradient, step, 1e-7, |w| loss(at, Some(expert), w));
    }
    // An expert that no row uses has no gradient, and rightly so.
    for expert in (0..MIXTURE.n_experts).filter(|e| !used.contains(e)) {
        let moved = vec![0.5; MIXTURE.d_ff * D_MODEL];
        let own = &all[1][expert * moved.len()..][..moved.len()];
        assert_eq!(loss(1, Some(expert), &moved), loss(1, Some(expert), own));
    }
}

/// gpt-oss: biases everywhere, gate and up cut, weights by a softmax over the chosen.
#[test]
fn of_biases() {
    let biases = ExpertBiases { gate: WeightId(5), up: WeightId(6), down: WeightId(7) };
    let m = Mixture {
        router_bias: Some(WeightId(4)),
        biases: Some(biases),
        gating: Gating::ClampedSwiglu { alpha: 1.7, limit: 1.5 },
        routing: Routing { score: Score::SoftmaxOfChosen, ..RENORMALISED },
        ..MIXTURE
    };
    let mut seeded = Seeded(23);
    let mut all = values(&mut seeded).to_vec();
    let Mixture { n_experts, d_ff, .. } = m;
    let widths = [1, d_ff, d_ff, D_MODEL];
    all.extend(widths.map(|width| seeded.values(n_experts * width)));
    let (x, dy) = (seeded.values(ROWS * D_MODEL), seeded.values(ROWS * D_MODEL));
    let weights = |all: &[Vec<f64>]| -> LoadedWeights {
        let shapes = [D_MODEL, D_MODEL, D_MODEL, d_ff, n_experts, d_ff, d_ff, D_MODEL];
        let store = |(values, width): (&Vec<f64>, usize)| {
            let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            stored(DType::F32, &[values.len() / width, width], &values)
        };
        all.iter().zip(shapes).map(store).collect()
    };
    let loss = |all: &[Vec<f64>], x: &[f64]| dot(&mixture(x, &m, &weights(all)).expect("y"), &dy);
    let d = mixture_backward(&x, &m, &weights(&all), &dy).expect("gradients");
    let step = 2f64.powi(-9);
    check_gradient_with("x", &x, &d.x, step, 1e-7, |x| loss(&all, x));
    let (&expert, gradients) = d.experts.iter().next().expect("an expert");
    let moved = |at: usize, start: usize, values: &[f64]| {
        let mut all = all.clone();
        all[at][start..start + values.len()].copy_from_slice(values);
        loss(&all, &x)
    };
    check_gradient_with("router's bias", &all[4], &d.router_bias, step, 1e-7, |v| moved(4, 0, v));
    for (i, gradient) in gradients.biases.iter().enumerate() {
        let (at, start) = (5 + i, expert * gradient.len());
        let own = &all[at][start..start + gradient.len()];
        check_gradient_with(&format!("bias {i}"), own, gradient, step, 1e-7, |v| moved(at, start, v));
    }
}

/// Experts without a gate; their function is one without kinks here, which differences would see.
#[test]
fn without_a_gate() {
    let m = Mixture { gate: None, gating: Gating::Plain(Activation::GeluErf), ..MIXTURE };
    let mut seeded = Seeded(24);
    let all = values(&mut seeded);
    let (x, dy) = (seeded.values(ROWS * D_MODEL), seeded.values(ROWS * D_MODEL));
    let d = mixture_backward(&x, &m, &weights(&all, DType::F32), &dy).expect("gradients");
    let step = 2f64.powi(-9);
    let loss = |all: &[Vec<f64>; 4], x: &[f64]| dot(&mixture(x, &m, &weights(all, DType::F32)).expect("y"), &dy);
    check_gradient_with("x", &x, &d.x, step, 1e-7, |x| loss(&all, x));
    let (&expert, gradients) = d.experts.iter().next().expect("an expert");
    let start = expert * gradients.up.len();
    let own = &all[2][start..start + gradients.up.len()];
    check_gradient_with("up", own, &gradients.up, step, 1e-7, |moved| {
        let mut all = all.clone();
        all[2][start..start + moved.len()].copy_from_slice(moved);
        loss(&all, &x)
    });
    assert!(gradients.gate.iter().all(|&d| d == 0.0));
}
