//! The convolution against the reference.

use selkie_model::plan::{Op, Slot};

use crate::kernels::{checks::Dispatches, rig::Rig};

fn check(channels: usize, taps: usize, bias: bool, silu: bool, passes: &[&[usize]]) {
    let mut rig = Rig::new(taps as u64);
    let [x, _] = rig.inputs([channels, 3]);
    let weight = rig.vector(&[channels, taps]);
    let bias = bias.then(|| rig.vector(&[channels]));
    let state = rig.slot(Slot::Conv { channels, taps });
    let out = rig.buffer(channels);
    rig.op(Op::CausalConv { x, weight, bias, silu, state, out });
    assert_eq!(rig.check(&[out], passes, 1e-5), Dispatches { token: 1, block: 1 });
}

/// Sequences shorter than the window, of its length and longer, and tokens in between.
#[test]
fn windows_move_on() {
    let passes: &[&[usize]] = &[&[1, 3, 2], &[1, 0, 0], &[2, 1, 4], &[0, 1, 0], &[0, 3, 9], &[5, 1, 1]];
    check(130, 4, true, true, passes);
    check(64, 3, false, false, passes);
    check(10, 2, true, false, passes);
}

#[test]
fn blocks_of_rows() {
    for rows in [2, 63, 64, 65, 200, 600] {
        check(72, 4, true, true, &[&[rows], &[1], &[rows, 5]]);
    }
}

/// More taps than rows that an invocation would take otherwise.
#[test]
fn long_windows() {
    check(8, 14, true, true, &[&[5, 40], &[1, 0], &[20, 9]]);
    check(8, 1, true, true, &[&[5, 40], &[1, 0]]);
}

/// Several at once, of inputs that lie together, and apart where they do not.
#[test]
fn inputs_beside_each_other() {
    for (apart, dispatches) in [(false, 1), (true, 3)] {
        let mut rig = Rig::new(5);
        let widths = [66, 8, 13];
        let xs = if apart { widths.map(|width| rig.input(width)) } else { rig.inputs(widths) };
        let mut outs = vec![];
        for (x, channels) in xs.into_iter().zip(widths) {
            let (weight, taps) = (rig.vector(&[channels, 4]), 4);
            let bias = (channels != 8).then(|| rig.vector(&[channels]));
            let state = rig.slot(Slot::Conv { channels, taps });
            let out = rig.buffer(channels);
            rig.op(Op::CausalConv { x, weight, bias, silu: true, state, out });
            outs.push(out);
        }
        let all = rig.check(&outs, &[&[1, 3, 2], &[1, 0, 0], &[2, 1, 70], &[0, 1, 0], &[0, 3, 9], &[5, 1, 1]], 1e-5);
        assert_eq!(all, Dispatches { token: dispatches, block: dispatches });
    }
}
