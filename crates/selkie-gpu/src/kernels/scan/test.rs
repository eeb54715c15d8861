//! The selective scan against the reference in f64.

use selkie_model::{
    plan::{BufferId, Op, SelectiveScanOp, Slot},
    spec::InputRule,
};

use crate::kernels::rig::{Dispatches, Rig};

#[derive(Clone, Copy)]
enum Norms {
    Without,
    Plain,
    Weighted,
}

struct Case {
    channels: usize,
    d_state: usize,
    input: InputRule,
    norms: Norms,
}

impl Case {
    #[track_caller]
    fn check(&self, passes: &[&[usize]]) {
        let &Self { channels, d_state, input, norms } = self;
        let mut rig = Rig::new(d_state as u64);
        let [mut b, mut c] = rig.inputs([d_state, d_state]);
        let x = rig.input(channels);
        // Step sizes from a thousandth to four.
        let dt = rig.input_between(channels, -7.0, 4.0);
        let a = rig.vector_between(&[channels, d_state], -16.0, -0.01);
        let d = rig.vector(&[channels]);
        let state = rig.slot(Slot::Scan { channels, d_state });
        if !matches!(norms, Norms::Without) {
            let mut norm = |x: BufferId| {
                let weight = matches!(norms, Norms::Weighted).then(|| rig.vector(&[d_state]));
                let out = rig.buffer(d_state);
                rig.op(Op::RmsNorm { x, weight, group: d_state, eps: 1e-3, out });
                out
            };
            [b, c] = [norm(b), norm(c)];
        }
        let out = rig.buffer(channels);
        rig.op(Op::SelectiveScan(SelectiveScanOp { x, dt, b, c, a, d, input, state, out }));
        let found = rig.check(&[out], passes, 3e-6);
        let made = if matches!(norms, Norms::Without) { 0 } else { 2 };
        assert_eq!(found, Dispatches { token: 1, block: 3 + made });
    }
}

#[test]
fn as_models_have_it() {
    let case = Case { channels: 160, d_state: 16, input: InputRule::Euler, norms: Norms::Without };
    case.check(&[&[1], &[2], &[63], &[64], &[65], &[1], &[200], &[600], &[1]]);
}

#[test]
fn several_sequences_in_blocks() {
    let case = Case { channels: 70, d_state: 16, input: InputRule::ZeroOrderHold, norms: Norms::Weighted };
    case.check(&[&[3, 130], &[1, 0], &[0, 1], &[64, 1], &[65, 64], &[1, 1], &[127, 65]]);
}

#[test]
fn states_of_any_size() {
    for (d_state, norms) in [(1, Norms::Without), (3, Norms::Plain), (6, Norms::Weighted), (18, Norms::Plain)] {
        let case = Case { channels: 75, d_state, input: InputRule::ZeroOrderHold, norms };
        case.check(&[&[1], &[70], &[1], &[9]]);
    }
    for (d_state, norms) in [(128, Norms::Weighted), (70, Norms::Without), (200, Norms::Plain)] {
        let case = Case { channels: 9, d_state, input: InputRule::Euler, norms };
        case.check(&[&[1], &[70], &[1], &[9]]);
    }
}
