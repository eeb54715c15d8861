//! The delta rule against the reference in f64.

use selkie_model::{
    plan::{DeltaRuleOp, Op, Slot},
    spec::DeltaShape,
};

use crate::kernels::{checks::Dispatches, rig::Rig};

/// `alike`: how much keys have in common, from 0 to 1.
#[track_caller]
fn check(shape: DeltaShape, alike: f32, passes: &[&[usize]], tolerance: f64) {
    let mut rig = Rig::new(7);
    let qkv = rig.input_between(shape.width(), alike - 1.0, 1.0);
    let b = rig.input_between(shape.n_v_heads, -4.0, 4.0);
    let a = rig.input_between(shape.n_v_heads, -6.0, 3.0);
    let a_weight = rig.vector_between(&[shape.n_v_heads], -16.0, -0.01);
    let dt_bias = rig.vector(&[shape.n_v_heads]);
    let state = rig.slot(Slot::Delta(shape));
    let out = rig.buffer(shape.d_inner());
    rig.op(Op::DeltaRule(DeltaRuleOp { qkv, b, a, a_weight, dt_bias, shape, state, out }));
    let found = rig.check(&[out], passes, tolerance);
    assert_eq!(found, Dispatches { token: 1, block: 3 });
}

#[test]
fn as_models_have_it() {
    let shape = DeltaShape { n_k_heads: 2, n_v_heads: 4, k_dim: 128, v_dim: 128 };
    check(shape, 0.0, &[&[1], &[2], &[7], &[8], &[31], &[32], &[33], &[1], &[64], &[200], &[600], &[1]], 1e-5);
}

#[test]
fn keys_that_are_much_alike() {
    let shape = DeltaShape { n_k_heads: 1, n_v_heads: 2, k_dim: 64, v_dim: 64 };
    check(shape, 1.0, &[&[100], &[1], &[33]], 1e-5);
}

#[test]
fn several_sequences_in_blocks() {
    let shape = DeltaShape { n_k_heads: 2, n_v_heads: 6, k_dim: 64, v_dim: 32 };
    check(shape, 0.5, &[&[3, 70], &[1, 0], &[0, 1], &[32, 1], &[33, 64], &[1, 1]], 1e-5);
}

#[test]
fn heads_of_any_size() {
    let sizes = [(8, 8), (6, 10), (16, 3), (1, 1), (200, 24), (300, 5), (24, 200), (768, 4)];
    for (k_dim, v_dim) in sizes {
        let shape = DeltaShape { n_k_heads: 1, n_v_heads: 3, k_dim, v_dim };
        check(shape, 0.2, &[&[1], &[40], &[1], &[9]], 1e-5);
    }
}
