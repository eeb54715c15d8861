//! Mixtures against the reference, at sizes and with rules that fixtures lack.

use selkie_formats::DType;
use selkie_model::{
    WeightId,
    plan::{BufferId, Op, Product},
    spec::{Activation, ExpertBiases, Gating, GroupScore, Groups, Mixture, Routing, Score},
};

use crate::{
    Gpu, GpuOptions, Limits,
    kernels::{checks::Dispatches, rig::Rig},
};

/// A mixture's sizes and types.
#[derive(Clone, Copy)]
struct Shape {
    n_experts: usize,
    n_used: usize,
    d_model: usize,
    d_ff: usize,
    gate: Option<DType>,
    up: DType,
    down: DType,
    biases: bool,
    gating: Gating,
}

const SILU: Gating = Gating::Plain(Activation::Silu);
const SMALL: Shape = Shape {
    n_experts: 6,
    n_used: 2,
    d_model: 64,
    d_ff: 32,
    gate: Some(DType::F32),
    up: DType::F32,
    down: DType::F32,
    biases: false,
    gating: SILU,
};

impl Shape {
    fn mixture(&self, rig: &mut Rig, routing: Routing) -> Mixture {
        let Shape { n_experts, d_model, d_ff, .. } = *self;
        let wide = |rig: &mut Rig, dtype| rig.matrix(dtype, &[n_experts, d_ff, d_model]);
        Mixture {
            // Scores are far enough apart for f32 to tell.
            router: rig.vector(&[n_experts, d_model]),
            router_bias: self.biases.then(|| rig.vector(&[n_experts])),
            gate: self.gate.map(|dtype| wide(rig, dtype)),
            up: wide(rig, self.up),
            down: rig.matrix(self.down, &[n_experts, d_model, d_ff]),
            biases: self.biases.then(|| ExpertBiases {
                gate: rig.vector(&[n_experts, d_ff]),
                up: rig.vector(&[n_experts, d_ff]),
                down: rig.vector(&[n_experts, d_model]),
            }),
            gating: self.gating,
            n_experts,
            n_used: self.n_used,
            d_ff,
            routing,
        }
    }

    /// The mixture of an input, alone.
    fn rig(&self, seed: u64, routing: impl FnOnce(&mut Rig) -> Routing) -> (Rig, BufferId) {
        let mut rig = Rig::new(seed);
        let x = rig.input(self.d_model);
        let routing = routing(&mut rig);
        let mixture = self.mixture(&mut rig, routing);
        let out = rig.buffer(self.d_model);
        rig.op(Op::Mixture { x, mixture, out });
        (rig, out)
    }
}

const PASSES: &[&[usize]] = &[&[1, 0], &[2, 0], &[1, 64], &[0, 1], &[65, 0]];

#[test]
fn every_rule_of_routing() {
    let bias = |rig: &mut Rig, n: usize| Some(rig.vector_between(&[n], -0.3, 0.3));
    let groups = |n_groups, n_used, by| Some(Groups { n_groups, n_used, by });
    type Rule<'a> = (&'a str, &'a dyn Fn(&mut Rig) -> Routing);
    let rules: &[Rule<'_>] = &[
        ("softmax", &|_| Routing::softmax(false)),
        ("softmax, renormalised", &|_| Routing { scale: 1.5, ..Routing::softmax(true) }),
        ("softmax with a bias", &|rig| Routing { choice_bias: bias(rig, 24), ..Routing::softmax(true) }),
        ("sigmoid", &|_| Routing { score: Score::Sigmoid, ..Routing::softmax(true) }),
        ("of the chosen", &|_| Routing { score: Score::SoftmaxOfChosen, scale: 0.5, ..Routing::softmax(false) }),
        ("softmax of groups", &|_| Routing { groups: groups(6, 2, GroupScore::Best), ..Routing::softmax(false) }),
        ("softmax of pairs", &|_| Routing { groups: groups(4, 2, GroupScore::BestTwo), ..Routing::softmax(false) }),
        ("sigmoid of groups with a bias", &|rig| Routing {
            score: Score::Sigmoid,
            choice_bias: bias(rig, 24),
            groups: groups(4, 2, GroupScore::BestTwo),
            renormalise: true,
            scale: 2.5,
        }),
    ];
    for (name, rule) in rules {
        println!("{name}");
        let shape = Shape { n_experts: 24, n_used: 5, ..SMALL };
        let (rig, out) = shape.rig(1, rule);
        assert_eq!(rig.check(&[out], PASSES, 1e-4), Dispatches { token: 3, block: 6 }, "{name}");
    }
}

#[test]
fn equal_scores_go_to_the_lower_index() {
    let mut rig = Rig::new(2);
    let x = rig.input(SMALL.d_model);
    let mut mixture = Shape { n_experts: 9, n_used: 4, ..SMALL }.mixture(&mut rig, Routing::softmax(true));
    // Two routers' rows take turns, and both zeros are one.
    let rows: Vec<f32> = (0..9).flat_map(|e| (0..64).map(move |i| ((e % 2 * 7 + i) as f32 * 0.7).sin())).collect();
    mixture.router = rig.weight(&[9, 64], rows);
    let out = rig.buffer(SMALL.d_model);
    rig.op(Op::Mixture { x, mixture, out });
    rig.check(&[out], PASSES, 1e-4);
    mixture.router = rig.weight(&[9, 64], vec![0.0; 9 * 64]);
    let bias = (0..9).map(|e| if e % 2 == 0 { -0.0 } else { 0.0 }).collect();
    mixture.router_bias = Some(rig.weight(&[9], bias));
    let out = rig.buffer(SMALL.d_model);
    rig.op(Op::Mixture { x, mixture, out });
    rig.check(&[out], PASSES, 1e-4);
}

#[test]
fn every_shape_of_experts() {
    let q8 = DType::Q8_0;
    let clamped = Gating::ClampedSwiglu { alpha: 1.702, limit: 0.5 };
    let shapes: &[(&str, Shape)] = &[
        ("no multiple of anything", Shape { n_experts: 7, n_used: 3, d_model: 44, d_ff: 23, ..SMALL }),
        ("one expert", Shape { n_experts: 1, n_used: 1, ..SMALL }),
        ("all experts", Shape { n_experts: 5, n_used: 5, ..SMALL }),
        ("no gate", Shape { gate: None, gating: Gating::Plain(Activation::ReluSquared), ..SMALL }),
        ("gate and up of two types", Shape { gate: Some(q8), up: DType::F16, down: q8, ..SMALL }),
        ("biases, cut", Shape { biases: true, gating: clamped, ..SMALL }),
        ("biases, two types", Shape { biases: true, gating: clamped, gate: Some(DType::BF16), up: q8, ..SMALL }),
        ("blocks", Shape { gate: Some(q8), up: q8, down: DType::Q4_0, d_model: 96, ..SMALL }),
    ];
    for (name, shape) in shapes {
        println!("{name}");
        let (rig, out) = shape.rig(3, |_| Routing::softmax(true));
        rig.check(&[out], PASSES, 1e-4);
    }
}

#[test]
fn experts_of_several_types() {
    let (q8, f16, f32) = (DType::Q8_0, DType::F16, DType::F32);
    let mut rig = Rig::new(10);
    let x = rig.input(SMALL.d_model);
    let mut mixture = SMALL.mixture(&mut rig, Routing::softmax(true));
    let wide = [SMALL.n_experts, SMALL.d_ff, SMALL.d_model];
    let [gate, up] = [(), ()].map(|()| rig.stack(&[q8, q8, f16, f32, f32, q8], &wide));
    (mixture.gate, mixture.up) = (Some(gate), up);
    mixture.down = rig.stack(&[f16, q8], &[SMALL.n_experts, SMALL.d_model, SMALL.d_ff]);
    let out = rig.buffer(SMALL.d_model);
    rig.op(Op::Mixture { x, mixture, out });
    // Runs of one type: four of gates, four of ups, two of the last.
    assert_eq!(rig.check(&[out], PASSES, 1e-4), Dispatches { token: 1 + 10, block: 4 + 10 });
}

#[test]
fn sizes_of_real_models() {
    let q8 = DType::Q8_0;
    let wide = Shape { gate: Some(q8), up: q8, down: q8, ..SMALL };
    // Qwen3-30B-A3B's router and gpt-oss's width, with fewer or narrower experts; 512 experts of Qwen3-Next.
    let qwen = Shape { n_experts: 128, n_used: 8, d_model: 256, d_ff: 96, ..wide };
    let wide_rows = Shape { n_experts: 8, n_used: 4, d_model: 2880, d_ff: 64, ..wide };
    let many = Shape { n_experts: 512, n_used: 10, d_model: 64, ..wide };
    let passes: [&[&[usize]]; 3] = [&[&[1], &[200]], &[&[1], &[33]], &[&[1], &[2], &[600]]];
    for (shape, passes) in [qwen, wide_rows, many].iter().zip(passes) {
        let (rig, out) = shape.rig(4, |_| Routing::softmax(true));
        rig.check(&[out], passes, 1e-4);
    }
}

#[test]
fn inputs_rounded_to_bytes() {
    let q8 = DType::Q8_0;
    let shape = Shape { gate: Some(q8), up: q8, down: DType::Q4_1, d_ff: 96, d_model: 128, ..SMALL };
    let relu = Gating::Plain(Activation::ReluSquared);
    let shapes: &[(&str, Shape)] = &[
        ("pairs", shape),
        ("biases, cut", Shape { biases: true, gating: Gating::ClampedSwiglu { alpha: 1.702, limit: 0.5 }, ..shape }),
        ("no gate", Shape { gate: None, gating: relu, d_ff: 160, ..shape }),
        ("two types", Shape { up: DType::Q4_0, ..shape }),
        ("floats last", Shape { down: DType::F16, ..shape }),
    ];
    for (name, shape) in shapes {
        println!("{name}");
        let (mut rig, out) = shape.rig(5, |_| Routing::softmax(true));
        rig.exact = false;
        rig.check(&[out], PASSES, 2e-2);
    }
}

/// A device without extras, whose bindings hold `binding` bytes.
fn floor(binding: u64) -> Gpu {
    let limits = Limits { binding, ..Limits::FLOOR };
    let options = GpuOptions { software: true, floor: true, limits: Some(limits), ..GpuOptions::default() };
    pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
}

#[test]
fn stacks_larger_than_a_binding() {
    // An expert's gate and up take 16 KiB, its down 8 KiB: a few experts a buffer, and then a part of one.
    for (binding, parts) in [(40 << 10, 3), (12 << 10, 8)] {
        let (mut rig, out) = Shape { biases: true, ..SMALL }.rig(6, |_| Routing::softmax(true));
        rig.gpu = floor(binding);
        let dispatches = rig.check(&[out], &[&[1], &[5], &[1], &[1]], 1e-4);
        assert!(dispatches.token > parts, "{dispatches:?}");
    }
}

#[test]
fn rows_that_are_too_many_at_once() {
    let shape = Shape { d_model: 40, d_ff: 16, ..SMALL };
    let (mut rig, out) = shape.rig(7, |_| Routing::softmax(true));
    // 2 choices of 40 values: 320 bytes a row, 51 rows at once. Gates and ups are cut in two.
    rig.gpu = floor(16 << 10);
    let dispatches = rig.check(&[out], &[&[70], &[1], &[51], &[52]], 1e-4);
    assert_eq!(dispatches.block, 1 + 2 * 6);
}

#[test]
fn norm_and_residual_are_part_of_it() {
    let mut rig = Rig::new(8);
    let stream = rig.input(SMALL.d_model);
    let weight = Some(rig.vector(&[SMALL.d_model]));
    let normed = rig.buffer(SMALL.d_model);
    rig.op(Op::RmsNorm { x: stream, weight, group: SMALL.d_model, eps: 1e-5, out: normed });
    let mixture = SMALL.mixture(&mut rig, Routing::softmax(true));
    let y = rig.buffer(SMALL.d_model);
    rig.op(Op::Mixture { x: normed, mixture, out: y });
    let out = rig.buffer(SMALL.d_model);
    rig.op(Op::Add { x: stream, y, scale: 0.5, out });
    assert_eq!(rig.check(&[out], PASSES, 1e-4), Dispatches { token: 3, block: 7 });
}

/// A norm, a mixture and a block beside it, which may have a gate of its own.
fn shared(gated: bool) -> Dispatches {
    let mut rig = Rig::new(9);
    let (d_model, d_ff) = (SMALL.d_model, 48);
    let stream = rig.input(d_model);
    let weight = Some(rig.vector(&[d_model]));
    let normed = rig.buffer(d_model);
    rig.op(Op::RmsNorm { x: stream, weight, group: d_model, eps: 1e-5, out: normed });
    let mixture = SMALL.mixture(&mut rig, Routing::softmax(true));
    let y = rig.buffer(d_model);
    rig.op(Op::Mixture { x: normed, mixture, out: y });
    let product = |weight: WeightId, out: BufferId| Product { weight, bias: None, out };
    let [gate, up] = [(), ()].map(|()| product(rig.matrix(DType::F32, &[d_ff, d_model]), rig.buffer(d_ff)));
    let h = rig.buffer(d_ff);
    rig.op(Op::LinearGlu { x: normed, gate, up, activation: Activation::Silu, out: h });
    let down = rig.matrix(DType::F32, &[d_model, d_ff]);
    let [both, out] = [(), ()].map(|()| rig.buffer(d_model));
    if gated {
        let of_rows = product(rig.matrix(DType::F32, &[1, d_model]), rig.buffer(1));
        let [made, scaled] = [(), ()].map(|()| rig.buffer(d_model));
        rig.op(Op::Linear { x: h, product: product(down, made) });
        rig.op(Op::Linear { x: normed, product: of_rows });
        rig.op(Op::ScaleRows { x: made, gate: of_rows.out, out: scaled });
        rig.op(Op::Add { x: y, y: scaled, scale: 1.0, out: both });
    } else {
        rig.op(Op::LinearAdd { x: h, weight: down, bias: None, residual: y, scale: 1.0, out: both });
    }
    rig.op(Op::Add { x: stream, y: both, scale: 0.25, out });
    rig.check(&[out], PASSES, 1e-4)
}

#[test]
fn a_block_beside_it_adds_to_the_sum() {
    assert_eq!(shared(false).token, 5);
    assert_eq!(shared(true).token, 7);
}
