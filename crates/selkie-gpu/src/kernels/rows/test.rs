//! Values of rows against the reference: norms, gates, sums, embeddings, turns, and rows that are taken.

use selkie_formats::DType;
use selkie_model::{
    plan::{BufferId, Op},
    rope::{Pairing, RopeScaling, RopeSpec},
    spec::Activation,
};

use crate::kernels::rig::Rig;

const PASSES: &[&[usize]] = &[&[1, 0], &[2, 0], &[1, 130], &[0, 1], &[65, 0]];

/// One op of an input, and of a second beside it.
fn check(width: usize, tolerance: f64, op: &dyn Fn(&mut Rig, [BufferId; 2], BufferId) -> Op) {
    let mut rig = Rig::new(width as u64);
    let inputs = rig.inputs([width, width]);
    let out = rig.buffer(width);
    let op = op(&mut rig, inputs, out);
    rig.op(op);
    rig.check(&[out], PASSES, tolerance);
}

#[test]
fn norms_of_groups() {
    // The width, values of a group, and of the weight.
    for (width, group, len) in [
        (30, 30, Some(30)),
        (129, 43, Some(43)),
        (129, 43, Some(129)),
        (77, 7, None),
        (1000, 500, Some(500)),
        (5, 1, None),
    ] {
        check(width, 1e-5, &|rig, [x, _], out| {
            let weight = len.map(|len| rig.vector(&[len]));
            Op::RmsNorm { x, weight, group, eps: 1e-3, out }
        });
    }
}

#[test]
fn functions_of_values() {
    use Activation::{GeluErf, GeluTanh, Identity, Relu, ReluSquared, Sigmoid, Silu};
    for activation in [Silu, GeluTanh, GeluErf, Relu, ReluSquared, Sigmoid, Identity] {
        println!("{}", activation.name());
        check(133, 1e-5, &|_, [x, _], out| Op::Activate { x, activation, out });
        check(7, 1e-5, &|_, [gate, up], out| Op::Glu { gate, up, activation, out });
    }
    check(131, 1e-5, &|_, [x, _], out| Op::Clamp { x, limit: 0.3, out });
    check(131, 1e-5, &|_, [x, _], out| Op::SoftCap { x, cap: 0.7, out });
    check(131, 1e-5, &|_, [x, _], out| Op::Scale { x, scale: -1.5, out });
    check(131, 1e-5, &|_, [x, y], out| Op::Add { x, y, scale: 0.25, out });
    check(131, 1e-5, &|_, [x, _], out| Op::Add { x, y: x, scale: 0.25, out });
}

#[test]
fn steps_one_after_another() {
    for first in [true, false] {
        let mut rig = Rig::new(1);
        let [x, gate, of_row, residual] = rig.inputs([45, 45, 1, 45]);
        let weight = Some(rig.vector(&[15]));
        let [a, b, c, d, out] = [(); 5].map(|()| rig.buffer(45));
        let (activation, scale) = (Activation::Silu, 1.5);
        let row = |x, out| Op::ScaleRows { x, gate: of_row, out };
        let glu = |up, out| Op::Glu { gate, up, activation, out };
        rig.op(if first { row(x, a) } else { glu(x, a) });
        rig.op(Op::RmsNorm { x: a, weight, group: 15, eps: 1e-3, out: b });
        rig.op(if first { glu(b, c) } else { row(b, c) });
        rig.op(Op::Scale { x: c, scale, out: d });
        rig.op(Op::Add { x: residual, y: d, scale: -0.5, out });
        rig.check(&[out, d, b], PASSES, 1e-5);
    }
}

#[test]
fn embeddings_of_every_type() {
    for (dtype, width) in
        [(DType::F32, 37), (DType::F16, 44), (DType::BF16, 1100), (DType::Q8_0, 1056), (DType::Q6_K, 256)]
    {
        println!("{dtype}");
        let mut rig = Rig::new(2);
        let table = rig.matrix(dtype, &[97, width]);
        let out = rig.buffer(width);
        rig.op(Op::Embed { table, scale: 2.5, out });
        rig.check(&[out], PASSES, 1e-6);
    }
    let mut rig = Rig::new(3);
    let table = rig.rows_of(&[(DType::F16, 40), (DType::Q8_0, 57)], 64);
    let out = rig.buffer(64);
    rig.op(Op::Embed { table, scale: 1.0, out });
    rig.check(&[out], PASSES, 1e-6);
}

#[test]
fn heads_turned() {
    for (n_heads, head_dim, n_dims, pairing) in [
        (3, 10, 10, Pairing::Halves),
        (5, 64, 16, Pairing::Interleaved),
        (1, 6, 2, Pairing::Halves),
        (2, 128, 96, Pairing::Halves),
    ] {
        let mut rig = Rig::new(4);
        let x = rig.input(n_heads * head_dim);
        let rope = rig.rope(RopeSpec { n_dims, theta: 1e4, pairing, scaling: RopeScaling::None, freq_factors: None });
        let out = rig.buffer(n_heads * head_dim);
        rig.op(Op::Rope { x, rope, head_dim, out });
        rig.check(&[out], &[&[1, 0], &[300, 2], &[1, 0], &[0, 1], &[5, 70]], 2e-5);
    }
}
