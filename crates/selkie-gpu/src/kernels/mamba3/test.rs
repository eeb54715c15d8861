use selkie_model::{
    plan::{BufferId, Mamba3Op, Op, Slot},
    rope::Pairing,
    spec::{DecayActivation, Mamba3Shape},
};

use crate::kernels::{checks::Dispatches, rig::Rig};

fn siso(n_heads: usize, head_dim: usize, d_state: usize) -> Mamba3Shape {
    Mamba3Shape {
        n_heads,
        head_dim,
        n_groups: 1,
        d_state,
        rank: 1,
        n_angles: d_state / 4,
        pairing: Pairing::Interleaved,
        a_activation: DecayActivation::HeavyTail,
        a_floor: 1e-4,
    }
}

fn mimo(n_heads: usize, head_dim: usize, d_state: usize, rank: usize) -> Mamba3Shape {
    Mamba3Shape { rank, pairing: Pairing::Halves, n_groups: 2, ..siso(n_heads, head_dim, d_state) }
}

/// The op over inputs side by side, B and C with norms.
fn rig(seed: u64, shape: Mamba3Shape) -> (Rig, BufferId) {
    let mut rig = Rig::new(seed);
    let bc = shape.rank * shape.n_groups * shape.d_state;
    let heads = shape.n_heads;
    let inputs = rig.inputs([shape.d_inner(), bc, bc, heads, heads, heads, shape.n_angles]);
    let out = over(&mut rig, shape, inputs);
    (rig, out)
}

fn over(rig: &mut Rig, shape: Mamba3Shape, [x, b, c, dt, a, trap, angle]: [BufferId; 7]) -> BufferId {
    let bc = shape.rank * shape.n_groups * shape.d_state;
    let normed = [b, c].map(|x| {
        let weight = Some(rig.vector_between(&[shape.d_state], 0.5, 1.5));
        let out = rig.buffer(bc);
        rig.op(Op::RmsNorm { x, weight, group: shape.d_state, eps: 1e-5, out });
        out
    });
    let keys = [shape.n_heads, shape.rank, shape.d_state];
    let out = rig.buffer(shape.rank * shape.d_inner());
    let op = Mamba3Op {
        x,
        b: normed[0],
        c: normed[1],
        dt,
        a,
        trap,
        angle,
        dt_bias: rig.vector_between(&[shape.n_heads], -4.0, -1.0),
        b_bias: rig.vector_between(&keys, 0.5, 1.5),
        c_bias: rig.vector_between(&keys, 0.5, 1.5),
        d: rig.vector(&[shape.n_heads]),
        mimo_x: (shape.rank > 1).then(|| rig.vector(&[shape.n_heads, shape.rank, shape.head_dim])),
        shape,
        state: rig.slot(Slot::Mamba3(shape)),
        out,
    };
    rig.op(Op::Mamba3(op));
    out
}

/// One row, rows around a chunk's end, several sequences in a block, and rows that go on where others ended.
const PASSES: &[&[usize]] = &[&[1], &[63], &[1], &[64], &[65], &[200], &[1], &[2]];

#[test]
fn one_input_as_in_real_models() {
    let (rig, out) = rig(1, siso(3, 64, 128));
    let dispatches = rig.check(&[out], PASSES, 2e-5);
    assert_eq!(dispatches, Dispatches { token: 1, block: 7 });
}

#[test]
fn several_inputs_as_in_real_models() {
    let (rig, out) = rig(2, mimo(2, 64, 128, 4));
    let dispatches = rig.check(&[out], PASSES, 2e-5);
    assert_eq!(dispatches, Dispatches { token: 1, block: 7 });
}

#[test]
fn many_rows() {
    let (rig, out) = rig(3, siso(2, 16, 32));
    rig.check(&[out], &[&[600], &[300], &[1]], 5e-5);
}

#[test]
fn sequences_side_by_side() {
    let (one, out) = rig(4, siso(2, 8, 16));
    one.check(&[out], &[&[70, 1, 130], &[1, 0, 0], &[2, 64, 65], &[0, 1, 1]], 2e-5);
    let (several, out) = rig(5, mimo(2, 8, 16, 2));
    several.check(&[out], &[&[70, 1, 130], &[1, 0, 0], &[2, 64, 65], &[0, 1, 1]], 2e-5);
}

/// Widths that fill no vector, tile or power of two; more states than keys of all ranks have room for.
#[test]
fn odd_sizes() {
    let softplus = Mamba3Shape { a_activation: DecayActivation::Softplus, a_floor: 0.8, ..siso(3, 5, 6) };
    let (small, out) = rig(6, softplus);
    small.check(&[out], &[&[1], &[70], &[1]], 2e-5);
    let (wide, out) = rig(7, mimo(2, 100, 90, 3));
    wide.check(&[out], &[&[1], &[70], &[1]], 2e-5);
    let (large, out) = rig(8, mimo(2, 300, 264, 6));
    large.check(&[out], &[&[1], &[20], &[1]], 2e-5);
}

/// Inputs that different products left in different places.
#[test]
fn inputs_apart() {
    let shape = siso(2, 8, 16);
    let mut rig = Rig::new(9);
    let widths = [16, 16, 16, 2, 2, 2, 4];
    let inputs = widths.map(|width| rig.input(width));
    let out = over(&mut rig, shape, inputs);
    rig.check(&[out], &[&[1], &[70], &[1]], 2e-5);
}
