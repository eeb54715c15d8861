//! Ranks of Mamba-3 at the width of a 1.3B model.

use selkie_model::{plan::Op, spec::Activation};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (heads, head_dim, rank) = (64, 64, 4);
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let [x, y] = rig.inputs([heads * head_dim, heads * rank * head_dim]);
        let [expanded, gated] = [(); 2].map(|()| rig.buffer(heads * rank * head_dim));
        let out = rig.buffer(heads * head_dim);
        let weights = [(); 2].map(|()| rig.vector(&[heads, rank, head_dim]));
        rig.op(Op::RankExpand { x, weight: weights[0], head_dim, out: expanded });
        rig.op(Op::Glu { gate: expanded, up: y, activation: Activation::Silu, out: gated });
        rig.op(Op::RankReduce { x: gated, weight: weights[1], head_dim, out });
        let bytes = 4 * heads * head_dim * (rows * (2 + rank) + 2 * rank);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
