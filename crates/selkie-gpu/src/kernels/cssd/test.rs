//! The complex recurrence against the reference.

use selkie_model::{
    plan::{CssdOp, Op, Slot},
    spec::CssdShape,
};

use crate::kernels::{checks::Dispatches, rig::Rig};

fn check(shape: CssdShape, passes: &[&[usize]]) {
    let mut rig = Rig::new(shape.d_state as u64);
    let [_, xbc, dt] = rig.inputs([5, shape.width(), shape.n_heads]);
    let values = (0..shape.n_heads).flat_map(|h| [-0.05 - 0.4 * h as f32, 3.1 - 1.7 * h as f32]).collect();
    let a_log = rig.weight(&[shape.n_heads, 2], values);
    let d = rig.vector(&[shape.n_heads]);
    let dt_bias = rig.vector_between(&[shape.n_heads], -6.0, 1.0);
    let state = rig.slot(Slot::Cssd(shape));
    let out = rig.buffer(shape.d_inner());
    rig.op(Op::Cssd(CssdOp { xbc, dt, a_log, d, dt_bias, shape, state, out }));
    assert_eq!(rig.check(&[out], passes, 2e-5), Dispatches { token: 1, block: 4 });
}

fn shape(n_heads: usize, head_dim: usize, n_groups: usize, d_state: usize) -> CssdShape {
    CssdShape { n_heads, head_dim, n_groups, d_state }
}

#[test]
fn sequences_of_many_lengths() {
    for rows in [1, 2, 15, 16, 63, 64, 65, 200, 600] {
        check(shape(4, 64, 2, 64), &[&[rows], &[1], &[rows, 5], &[3, 0]]);
    }
}

/// Heads wider than a tile, more states than a tile, and sizes that fill no quads.
#[test]
fn heads_of_many_sizes() {
    for (head_dim, d_state) in [(128, 8), (80, 100), (1, 4), (7, 5), (6, 65), (4, 1)] {
        check(shape(6, head_dim, 3, d_state), &[&[70, 1], &[1, 3], &[0, 1], &[18, 64]]);
    }
}
