//! Products against the reference: every kind of block, every way in which an input and a sum are made.

use selkie_formats::DType;
use selkie_model::{
    plan::{BufferId, Op, Product},
    spec::Activation,
};

use crate::kernels::{checks::Dispatches, rig::Rig};

const PASSES: &[&[usize]] = &[&[1], &[3], &[1], &[70]];
const Q8: DType = DType::Q8_0;

impl Rig {
    fn product(&mut self, dtype: DType, [rows, cols]: [usize; 2], bias: bool) -> Product {
        Product {
            weight: self.matrix(dtype, &[rows, cols]),
            bias: bias.then(|| self.vector(&[rows])),
            out: self.buffer(rows),
        }
    }
}

/// Two products that share an input, one of a type that all have.
fn linears(dtype: DType, cols: usize, seed: u64) -> (Rig, Vec<BufferId>) {
    let mut rig = Rig::new(seed);
    let x = rig.input(cols);
    let products = vec![rig.product(dtype, [44, cols], false), rig.product(dtype, [33, cols], true)];
    let outs = products.iter().map(|product| product.out).collect();
    rig.op(Op::Linears { x, products });
    (rig, outs)
}

#[test]
fn every_kind_of_block() {
    use DType::{BF16, F16, F32, IQ2_XS, MXFP4, Q4_0, Q4_K, Q6_K};
    for dtype in [F32, F16, BF16, Q8, Q4_0, Q4_K, Q6_K, IQ2_XS, MXFP4] {
        println!("{dtype}");
        let (mut rig, outs) = linears(dtype, 512, 1);
        rig.check(&outs[1..], PASSES, 1e-5);
        rig.exact = false;
        rig.check(&outs[1..], PASSES, 1e-2);
    }
}

#[test]
fn rows_of_every_length() {
    for (dtype, cols) in [(DType::F32, 10), (DType::F16, 36), (Q8, 32), (Q8, 576), (Q8, 4096), (DType::F16, 12_000)] {
        println!("{dtype} {cols}");
        let (mut rig, outs) = linears(dtype, cols, 2);
        let passes: &[&[usize]] = if cols < 1000 { PASSES } else { &[&[1], &[5]] };
        rig.check(&outs, passes, 1e-5);
        rig.exact = false;
        rig.check(&outs, passes, 1e-2);
    }
}

#[test]
fn inputs_made_on_the_way() {
    for (dtype, cols, tolerance) in [(Q8, 96, 1e-2), (DType::F32, 60, 1e-4), (DType::F32, 30, 1e-4)] {
        for steps in 0..5 {
            println!("{dtype} {cols} {steps}");
            let mut rig = Rig::new(3);
            let [gate, x] = rig.inputs([cols, cols]);
            let mut made = x;
            let mut then = |rig: &mut Rig, op: &dyn Fn(BufferId, &mut Rig, BufferId) -> Op| {
                let out = rig.buffer(cols);
                let op = op(made, rig, out);
                rig.op(op);
                made = out;
            };
            let (activation, eps) = (Activation::Silu, 1e-2);
            let norm = |group: usize, len: Option<usize>| {
                move |x, rig: &mut Rig, out| {
                    let weight = len.map(|len| rig.vector_between(&[len], 0.5, 1.5));
                    Op::RmsNorm { x, weight, group, eps, out }
                }
            };
            match steps {
                0 => then(&mut rig, &norm(cols, Some(cols))),
                1 => {
                    then(&mut rig, &|x, _, out| Op::Glu { gate, up: x, activation, out });
                    then(&mut rig, &norm(cols, None));
                }
                2 => {
                    then(&mut rig, &norm(cols / 3, Some(cols)));
                    then(&mut rig, &|x, _, out| Op::Glu { gate, up: x, activation, out });
                }
                3 => {
                    then(&mut rig, &norm(cols / 2, Some(cols / 2)));
                    then(&mut rig, &|x, _, out| Op::Scale { x, scale: -0.5, out });
                }
                // A scale after a function that is not linear.
                _ => {
                    then(&mut rig, &norm(cols, Some(cols)));
                    then(&mut rig, &|x, _, out| Op::SoftCap { x, cap: 0.5, out });
                    then(&mut rig, &|x, _, out| Op::Scale { x, scale: 3.0, out });
                }
            }
            let product = rig.product(dtype, [40, cols], true);
            rig.op(Op::Linear { x: made, product });
            rig.check(&[product.out], PASSES, 1e-4);
            rig.exact = false;
            rig.check(&[product.out], PASSES, tolerance);
        }
    }
}

#[test]
fn gated_sums() {
    use DType::{F16, F32, Q4_0};
    let activations = [Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::ReluSquared];
    for ([of_gate, of_up], activation) in [[Q8, Q8], [F32, F32], [Q8, Q4_0], [F16, Q8]].into_iter().zip(activations) {
        println!("{of_gate} {of_up}");
        let mut rig = Rig::new(4);
        let x = rig.input(64);
        let [gate, up] = [of_gate, of_up].map(|dtype| rig.product(dtype, [52, 64], true));
        let out = rig.buffer(52);
        rig.op(Op::LinearGlu { x, gate, up, activation, out });
        rig.check(&[out], PASSES, 1e-5);
        rig.exact = false;
        rig.check(&[out], PASSES, 3e-2);
    }
}

/// Gates that are scaled first, where products make them and where they are multiplied later.
#[test]
fn gated_sums_of_scaled_gates() {
    use DType::Q4_0;
    let (scale, activation) = (0.6, Activation::Silu);
    for types in [[Q8, Q8], [Q8, Q4_0]] {
        let mut rig = Rig::new(8);
        let x = rig.input(64);
        let [gate, up] = types.map(|dtype| rig.product(dtype, [52, 64], true));
        let [scaled, out] = [(); 2].map(|()| rig.buffer(52));
        rig.op(Op::Linear { x, product: gate });
        rig.op(Op::Scale { x: gate.out, scale, out: scaled });
        rig.op(Op::Linear { x, product: up });
        rig.op(Op::Glu { gate: scaled, up: up.out, activation, out });
        let dispatches = if types[0] == types[1] { 1 } else { 2 };
        let all = rig.check(&[out], PASSES, 1e-5);
        assert_eq!(all, Dispatches { token: dispatches, block: dispatches });
    }
    for normed in [false, true] {
        let mut rig = Rig::new(9);
        let [gate, x] = rig.inputs([64, 64]);
        let [scaled, normal, gated] = [(); 3].map(|()| rig.buffer(64));
        rig.op(Op::Scale { x: gate, scale, out: scaled });
        let mut up = x;
        if normed {
            rig.op(Op::RmsNorm { x, weight: None, group: 64, eps: 1e-2, out: normal });
            up = normal;
        }
        rig.op(Op::Glu { gate: scaled, up, activation, out: gated });
        let product = rig.product(Q8, [40, 64], false);
        rig.op(Op::Linear { x: gated, product });
        let all = rig.check(&[product.out], PASSES, 1e-5);
        assert_eq!(all.token, 1);
        rig.exact = false;
        rig.check(&[product.out], PASSES, 1e-2);
    }
}

/// Scaled products of two parts, summed and scaled, and added to what both are of.
#[test]
fn sums_of_two_parts() {
    let mut rig = Rig::new(10);
    let x = rig.input(64);
    let [scaled, both, out] = [(); 3].map(|()| rig.buffer(64));
    let first = rig.product(Q8, [64, 64], true);
    let (weight, bias) = (rig.matrix(Q8, &[64, 64]), None);
    rig.op(Op::Linear { x, product: first });
    rig.op(Op::Scale { x: first.out, scale: 0.6, out: scaled });
    rig.op(Op::LinearAdd { x, weight, bias, residual: scaled, scale: 0.8, out: both });
    rig.op(Op::Add { x, y: both, scale: 0.5, out });
    let all = rig.check(&[out], PASSES, 1e-5);
    assert_eq!(all, Dispatches { token: 2, block: 2 });
}

#[test]
fn rows_of_several_types() {
    let types: &[(DType, usize)] = &[(DType::F16, 12), (Q8, 24), (DType::F16, 7)];
    let mut rig = Rig::new(5);
    let [x, residual] = rig.inputs([64, 43]);
    let [added, gated, alone] = [(); 3].map(|()| rig.buffer(43));
    let weight = rig.rows_of(types, 64);
    rig.op(Op::LinearAdd { x, weight, bias: None, residual, scale: 0.5, out: added });
    let [gate, up] = [(); 2].map(|()| Product { weight: rig.rows_of(types, 64), bias: None, out: rig.buffer(43) });
    rig.op(Op::LinearGlu { x, gate, up, activation: Activation::Silu, out: gated });
    let product = Product { weight, bias: None, out: alone };
    rig.op(Op::Linear { x, product });
    rig.check(&[added, gated, alone], PASSES, 1e-5);
}

#[test]
fn sums_added_to_a_residual() {
    for over in [true, false] {
        let mut rig = Rig::new(6);
        let x = rig.input(96);
        let residual = rig.input(50);
        let (weight, bias) = (rig.matrix(Q8, &[50, 96]), Some(rig.vector(&[50])));
        let mut out = rig.buffer(50);
        rig.op(Op::LinearAdd { x, weight, bias, residual, scale: 0.5, out });
        if !over {
            // The residual is read again.
            let both = rig.buffer(50);
            rig.op(Op::Add { x: out, y: residual, scale: 2.0, out: both });
            out = both;
        }
        rig.check(&[out], PASSES, 1e-5);
        rig.exact = false;
        rig.check(&[out], PASSES, 1e-2);
    }
}

#[test]
fn gated_sums_rounded_once() {
    // Widths of one flush and of many, and the last not full.
    for (d_model, d_ff) in [(64, 32), (96, 160), (576, 1536), (2048, 96)] {
        println!("{d_model} {d_ff}");
        let mut rig = Rig::new(7);
        let x = rig.input(d_model);
        let [gate, up] = [(); 2].map(|()| rig.product(Q8, [d_ff, d_model], true));
        let h = rig.buffer(d_ff);
        rig.op(Op::LinearGlu { x, gate, up, activation: Activation::Silu, out: h });
        let down = rig.matrix(DType::Q4_0, &[d_model, d_ff]);
        let out = rig.buffer(d_model);
        rig.op(Op::LinearAdd { x: h, weight: down, bias: None, residual: x, scale: 1.0, out });
        let passes: &[&[usize]] = &[&[1], &[3], &[1]];
        rig.check(&[out], passes, 1e-5);
        rig.exact = false;
        rig.check(&[out], passes, 1e-2);
    }
}

/// Products with corrections of low rank, of two values joined and normed, as shared blocks have them.
#[test]
fn corrections_of_low_rank() {
    use DType::{F16, F32};
    let shapes: &[(DType, usize, bool, usize)] =
        &[(F32, 4, false, 2), (F16, 8, true, 2), (Q8, 32, false, 2), (Q8, 32, true, 2), (Q8, 96, false, 2)];
    for &(dtype, rank, shared, dispatches) in shapes {
        println!("{dtype} {rank} {shared}");
        let mut rig = Rig::new(11);
        let (a, b) = (rig.input(64), rig.input(96));
        let [both, normed] = [(); 2].map(|()| rig.buffer(160));
        let weight = Some(rig.vector_between(&[160], 0.5, 1.5));
        rig.op(Op::JoinHeads { a, b, n_heads: 1, out: both });
        rig.op(Op::RmsNorm { x: both, weight, group: 160, eps: 1e-2, out: normed });
        let common = rig.matrix(dtype, &[rank, 160]);
        let mut outs = vec![];
        for rows in [70, 33, 128] {
            let product = rig.product(dtype, [rows, 160], true);
            let mut down = rig.product(dtype, [rank, 160], false);
            if shared {
                down.weight = common;
            }
            let (weight, out) = (rig.matrix(dtype, &[rows, rank]), rig.buffer(rows));
            rig.op(Op::Linears { x: normed, products: vec![product, down] });
            let (residual, scale) = (product.out, 0.5);
            rig.op(Op::LinearAdd { x: down.out, weight, bias: None, residual, scale, out });
            outs.push(out);
        }
        let all = rig.check(&outs, PASSES, 1e-5);
        assert_eq!(all.token, dispatches);
        rig.exact = false;
        rig.check(&outs, PASSES, 2e-2);
    }
}
