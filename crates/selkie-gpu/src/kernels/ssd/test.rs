//! Mamba-2's recurrence against the reference.

use selkie_model::{
    plan::{Op, Slot, SsdOp},
    spec::SsdShape,
};

use crate::{
    Limits,
    kernels::{checks::Dispatches, rig::Rig},
};

fn check(shape: SsdShape, passes: &[&[usize]]) {
    check_scaled(shape, None, passes);
}

/// The states between chunks of many rows of a large model are more than kernels see: blocks have fewer rows then.
#[test]
fn blocks_whose_states_fit() {
    let mut rig = Rig::new(12);
    let shape = shape(128, 64, 8, 128);
    let [xbc, dt] = rig.inputs([shape.width(), shape.n_heads]);
    let [a, d, dt_bias] = [(); 3].map(|()| rig.vector(&[shape.n_heads]));
    let state = rig.slot(Slot::Ssd(shape));
    let out = rig.buffer(shape.d_inner());
    rig.op(Op::Ssd(SsdOp { xbc, dt, a, d, dt_bias, shape, state, out }));
    for (wanted, given) in [(512, 512), (2048, 2048), (8192, 2048)] {
        let (program, rows) = rig.compiled_block(out, Limits::FLOOR, wanted).expect("a program");
        assert_eq!(rows, given);
        assert!(program.scratch.iter().all(|bytes| *bytes <= Limits::FLOOR.binding));
    }
}

/// With step sizes that are multiplied first.
fn check_scaled(shape: SsdShape, dt_scale: Option<f32>, passes: &[&[usize]]) {
    let mut rig = Rig::new(shape.d_state as u64);
    let [_, xbc, mut dt] = rig.inputs([5, shape.width(), shape.n_heads]);
    if let Some(scale) = dt_scale {
        let out = rig.buffer(shape.n_heads);
        rig.op(Op::Scale { x: dt, scale, out });
        dt = out;
    }
    let a = rig.vector_between(&[shape.n_heads], -16.0, -0.1);
    let d = rig.vector(&[shape.n_heads]);
    let dt_bias = rig.vector_between(&[shape.n_heads], -6.0, 0.0);
    let state = rig.slot(Slot::Ssd(shape));
    let out = rig.buffer(shape.d_inner());
    rig.op(Op::Ssd(SsdOp { xbc, dt, a, d, dt_bias, shape, state, out }));
    assert_eq!(rig.check(&[out], passes, 2e-5), Dispatches { token: 1, block: 4 });
}

fn shape(n_heads: usize, head_dim: usize, n_groups: usize, d_state: usize) -> SsdShape {
    SsdShape { n_heads, head_dim, n_groups, d_state, dt_min: 0.0, dt_max: f32::INFINITY, scale_input: true }
}

#[test]
fn sequences_of_many_lengths() {
    for rows in [1, 2, 15, 16, 63, 64, 65, 200, 600] {
        check(shape(4, 64, 2, 128), &[&[rows], &[1], &[rows, 5], &[3, 0]]);
    }
}

/// Heads wider than a tile, more states than a tile, and sizes that fill no quads.
#[test]
fn heads_of_many_sizes() {
    for (head_dim, d_state) in [(128, 16), (80, 256), (1, 8), (7, 5), (6, 130), (4, 1)] {
        check(shape(6, head_dim, 3, d_state), &[&[70, 1], &[1, 3], &[0, 1], &[18, 64]]);
    }
}

#[test]
fn step_sizes_within_limits_and_inputs_unscaled() {
    let limited = SsdShape { dt_min: 0.02, dt_max: 0.4, ..shape(3, 8, 1, 16) };
    check(limited, &[&[70], &[1], &[2]]);
    check(SsdShape { scale_input: false, ..shape(3, 8, 1, 16) }, &[&[70], &[1], &[2]]);
    check_scaled(limited, Some(2.5), &[&[70], &[1], &[2]]);
}
