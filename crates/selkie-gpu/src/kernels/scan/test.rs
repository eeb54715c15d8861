//! The selective scan against the reference in f64.

use selkie_formats::DType;
use selkie_model::{
    plan::{BufferId, Op, Product, SelectiveScanOp, Slot},
    spec::InputRule,
};

use crate::kernels::{checks::Dispatches, rig::Rig};

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
    fn norm(&self, rig: &mut Rig, x: BufferId, width: usize) -> BufferId {
        let weight = match self.norms {
            Norms::Without => return x,
            Norms::Plain => None,
            Norms::Weighted => Some(rig.vector_between(&[width], 0.5, 1.5)),
        };
        let out = rig.buffer(width);
        rig.op(Op::RmsNorm { x, weight, group: width, eps: 1e-3, out });
        out
    }

    /// With step sizes as `dt` makes them, `b` and `c` before their norms.
    #[track_caller]
    fn run(&self, rig: &mut Rig, [dt, b, c]: [BufferId; 3], passes: &[&[usize]], tolerance: f64) -> Dispatches {
        let &Self { channels, d_state, input, .. } = self;
        let x = rig.input(channels);
        let a = rig.vector_between(&[channels, d_state], -16.0, -0.01);
        let d = rig.vector(&[channels]);
        let state = rig.slot(Slot::Scan { channels, d_state });
        let [b, c] = [b, c].map(|x| self.norm(rig, x, d_state));
        let out = rig.buffer(channels);
        rig.op(Op::SelectiveScan(SelectiveScanOp { x, dt, b, c, a, d, input, state, out }));
        rig.check(&[out], passes, tolerance)
    }

    #[track_caller]
    fn check(&self, passes: &[&[usize]]) {
        let mut rig = Rig::new(self.d_state as u64);
        let [b, c] = rig.inputs([self.d_state, self.d_state]);
        // Step sizes from a thousandth to four.
        let dt = rig.input_between(self.channels, -7.0, 4.0);
        let found = self.run(&mut rig, [dt, b, c], passes, 1e-5);
        let norms = if matches!(self.norms, Norms::Without) { 0 } else { 2 };
        assert_eq!(found, Dispatches { token: 1, block: 3 + norms });
    }

    /// With step sizes that are a product of a short row, which lies beside B and C where it is not `apart`.
    #[track_caller]
    fn check_steps(&self, low: usize, dtype: DType, bias: bool, apart: bool) {
        let mut rig = Rig::new(low as u64);
        let [mut short, b, c] = rig.inputs([low, self.d_state, self.d_state]);
        if apart {
            short = rig.input(low);
        }
        let short = self.norm(&mut rig, short, low);
        let weight = rig.matrix(dtype, &[self.channels, low]);
        let bias = bias.then(|| rig.vector_between(&[self.channels], -6.0, 3.0));
        let dt = rig.buffer(self.channels);
        rig.op(Op::Linear { x: short, product: Product { weight, bias, out: dt } });
        let found = self.run(&mut rig, [dt, b, c], &[&[1], &[5], &[1], &[1]], 1e-5);
        let norms = if matches!(self.norms, Norms::Without) { 0 } else { 3 };
        assert_eq!(found, Dispatches { token: 1 + usize::from(apart), block: 4 + norms });
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

#[test]
fn step_sizes_made_on_the_way() {
    let case = |channels, d_state, norms| Case { channels, d_state, input: InputRule::Euler, norms };
    case(150, 16, Norms::Weighted).check_steps(48, DType::F16, true, false);
    case(70, 8, Norms::Plain).check_steps(256, DType::Q8_0, true, false);
    case(70, 3, Norms::Without).check_steps(256, DType::Q4_K, false, false);
    case(33, 16, Norms::Weighted).check_steps(5, DType::F32, false, false);
    case(33, 16, Norms::Weighted).check_steps(5, DType::F32, true, true);
}
