//! Heads of Qwen3-Next.

use selkie_model::{
    plan::{DeltaRuleOp, Op, Slot},
    spec::DeltaShape,
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let shape = DeltaShape { n_k_heads: 16, n_v_heads: 32, k_dim: 128, v_dim: 128 };
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let [qkv, b, a] = rig.inputs([shape.width(), shape.n_v_heads, shape.n_v_heads]);
        let a_weight = rig.vector_between(&[shape.n_v_heads], -16.0, -0.1);
        let dt_bias = rig.vector(&[shape.n_v_heads]);
        let state = rig.slot(Slot::Delta(shape));
        let out = rig.buffer(shape.d_inner());
        rig.op(Op::DeltaRule(DeltaRuleOp { qkv, b, a, a_weight, dt_bias, shape, state, out }));
        let bytes = 4 * (rows * (shape.width() + shape.d_inner()) + 2 * shape.n_v_heads * shape.k_dim * shape.v_dim);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
