//! Heads of a 1.3B Mamba-2.

use selkie_model::{
    plan::{Op, Slot, SsdOp},
    spec::SsdShape,
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (n_heads, head_dim, n_groups, d_state) = (64, 64, 1, 128);
    let (dt_min, dt_max) = (0.0, f32::INFINITY);
    let shape = SsdShape { n_heads, head_dim, n_groups, d_state, dt_min, dt_max, scale_input: true };
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let [xbc, dt] = rig.inputs([shape.width(), n_heads]);
        let a = rig.vector_between(&[n_heads], -16.0, -0.1);
        let [d, dt_bias] = [(); 2].map(|()| rig.vector(&[n_heads]));
        let state = rig.slot(Slot::Ssd(shape));
        let out = rig.buffer(shape.d_inner());
        rig.op(Op::Ssd(SsdOp { xbc, dt, a, d, dt_bias, shape, state, out }));
        let bytes = 4 * (rows * (shape.width() + shape.d_inner()) + 2 * shape.d_inner() * d_state);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
