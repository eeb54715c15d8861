use selkie_model::{
    plan::{BufferId, Op},
    spec::Activation,
};

use crate::kernels::{checks::Dispatches, rig::Rig};

const PASSES: &[&[usize]] = &[&[1], &[65, 2]];

#[test]
fn there_and_back() {
    let mut rig = Rig::new(1);
    let x = rig.input(3 * 20);
    let (several, one) = (rig.buffer(3 * 4 * 20), rig.buffer(3 * 20));
    let weights = [0, 1].map(|_| rig.vector(&[3, 4, 20]));
    rig.op(Op::RankExpand { x, weight: weights[0], head_dim: 20, out: several });
    rig.op(Op::RankReduce { x: several, weight: weights[1], head_dim: 20, out: one });
    let dispatches = rig.check(&[several, one], PASSES, 1e-6);
    assert_eq!(dispatches, Dispatches { token: 2, block: 2 });
}

/// Gates of `heads` heads of `dim` channels and `rank` ranks.
fn gates(heads: usize, dim: usize, rank: usize, normed: bool) -> (Rig, BufferId) {
    let mut rig = Rig::new(2);
    let [z, mut y] = rig.inputs([heads * dim, heads * rank * dim]);
    let [expanded, after, gated] = [(); 3].map(|()| rig.buffer(heads * rank * dim));
    let out = rig.buffer(heads * dim);
    let weights = [0, 1].map(|_| rig.vector(&[heads, rank, dim]));
    rig.op(Op::RankExpand { x: z, weight: weights[0], head_dim: dim, out: expanded });
    if normed {
        let weight = Some(rig.vector(&[heads * rank * dim]));
        rig.op(Op::RmsNorm { x: y, weight, group: dim, eps: 1e-5, out: after });
        y = after;
    }
    rig.op(Op::Glu { gate: expanded, up: y, activation: Activation::Silu, out: gated });
    rig.op(Op::RankReduce { x: gated, weight: weights[1], head_dim: dim, out });
    (rig, out)
}

#[test]
fn gates_and_norms_between_are_one_dispatch() {
    for (heads, dim, rank) in [(3, 64, 4), (5, 20, 2), (2, 300, 3), (40, 1, 60)] {
        for normed in [false, true] {
            let (rig, out) = gates(heads, dim, rank, normed);
            let dispatches = rig.check(&[out], PASSES, 1e-5);
            assert_eq!(dispatches, Dispatches { token: 1, block: 1 });
        }
    }
}
