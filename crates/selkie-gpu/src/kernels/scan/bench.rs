//! Channels of a 1.4B Mamba.

use selkie_model::{
    plan::{Op, SelectiveScanOp, Slot},
    spec::InputRule,
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (channels, d_state) = (4096, 16);
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let [x, dt, b, c] = rig.inputs([channels, channels, d_state, d_state]);
        let a = rig.vector_between(&[channels, d_state], -16.0, -0.1);
        let d = rig.vector(&[channels]);
        let state = rig.slot(Slot::Scan { channels, d_state });
        let out = rig.buffer(channels);
        let input = InputRule::Euler;
        rig.op(Op::SelectiveScan(SelectiveScanOp { x, dt, b, c, a, d, input, state, out }));
        let bytes = 4 * channels * (3 * rows + 3 * d_state);
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
