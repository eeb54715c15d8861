//! The norm of an 8B llama's stream; tokens have it made by their products. Made of what is wanted in the end, it is of no layer.

use selkie_model::plan::Op;

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let width = 4096;
    let mut rig = Rig::new(1);
    let x = rig.input(width);
    let (weight, out) = (Some(rig.vector(&[width])), rig.buffer(width));
    rig.op(Op::RmsNorm { x, weight, group: width, eps: 1e-5, out });
    vec![Case { rows: BLOCK, kernels: &["rows"], ..Case::new(format!("{BLOCK} rows"), rig, out, 8 * BLOCK * width) }]
}
