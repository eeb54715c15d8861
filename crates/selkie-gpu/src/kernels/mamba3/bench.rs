//! Heads of Mamba-3 at the width of a 1.3B model.

use selkie_model::{
    plan::{Mamba3Op, Op, Slot},
    rope::Pairing,
    spec::{DecayActivation, Mamba3Shape},
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let shape = Mamba3Shape {
        n_heads: 64,
        head_dim: 64,
        n_groups: 1,
        d_state: 128,
        rank: 1,
        n_angles: 32,
        pairing: Pairing::Interleaved,
        a_activation: DecayActivation::HeavyTail,
        a_floor: 1e-4,
    };
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let (heads, d_state) = (shape.n_heads, shape.d_state);
        let widths = [shape.d_inner(), d_state, d_state, heads, heads, heads, shape.n_angles];
        let [x, b, c, dt, a, trap, angle] = rig.inputs(widths);
        let dt_bias = rig.vector_between(&[heads], -4.0, -1.0);
        let [b_bias, c_bias] = [(); 2].map(|()| rig.vector(&[heads, 1, d_state]));
        let (d, mimo_x) = (rig.vector(&[heads]), None);
        let state = rig.slot(Slot::Mamba3(shape));
        let out = rig.buffer(shape.d_inner());
        rig.op(Op::Mamba3(Mamba3Op {
            x,
            b,
            c,
            dt,
            a,
            trap,
            angle,
            dt_bias,
            b_bias,
            c_bias,
            d,
            mimo_x,
            shape,
            state,
            out,
        }));
        let bytes = 4 * (rows * 2 * shape.d_inner() + 2 * shape.d_inner() * d_state);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
