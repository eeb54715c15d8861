//! Heads of a hybrid of the npm package's kind, as wide as a 1.3B Mamba-2.

use selkie_model::{
    plan::{CssdOp, Op, Slot},
    spec::CssdShape,
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let shape = CssdShape { n_heads: 64, head_dim: 64, n_groups: 1, d_state: 64 };
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let [xbc, dt] = rig.inputs([shape.width(), shape.n_heads]);
        let a_log = rig.vector_between(&[shape.n_heads, 2], -1.0, 0.0);
        let [d, dt_bias] = [(); 2].map(|()| rig.vector(&[shape.n_heads]));
        let state = rig.slot(Slot::Cssd(shape));
        let out = rig.buffer(shape.d_inner());
        rig.op(Op::Cssd(CssdOp { xbc, dt, a_log, d, dt_bias, shape, state, out }));
        // States are pairs, read and written.
        let bytes = 4 * (rows * (shape.width() + shape.d_inner()) + 2 * shape.d_inner() * 2 * shape.d_state);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
