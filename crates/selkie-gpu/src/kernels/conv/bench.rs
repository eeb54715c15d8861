//! Channels of a 1.3B Mamba-2.

use selkie_model::plan::{Op, Slot};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (channels, taps) = (4352, 4);
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let x = rig.input(channels);
        let (weight, bias) = (rig.vector(&[channels, taps]), Some(rig.vector(&[channels])));
        let state = rig.slot(Slot::Conv { channels, taps });
        let out = rig.buffer(channels);
        rig.op(Op::CausalConv { x, weight, bias, silu: true, state, out });
        let bytes = 4 * channels * (2 * rows + taps + 1 + 2 * (taps - 1));
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
