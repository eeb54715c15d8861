//! Rows of an 8B llama's stream.

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let width = 4096;
    let mut rig = Rig::new(1);
    let out = rig.input(width);
    let case = Case::new(format!("{BLOCK} rows"), rig, out, 8 * BLOCK * width);
    vec![Case { rows: BLOCK, kernels: &["take rows"], ..case }]
}
