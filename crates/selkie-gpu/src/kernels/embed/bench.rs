//! Rows of an 8B llama's embedding.

use selkie_formats::DType;
use selkie_model::plan::Op;

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let width = 4096;
    let case = |dtype: DType| {
        let mut rig = Rig::new(1);
        let tokens = rig.tokens;
        let table = rig.matrix(dtype, &[tokens, width]);
        let out = rig.buffer(width);
        rig.op(Op::Embed { table, scale: 1.0, out });
        let bytes = BLOCK * (dtype.row_bytes(width).expect("whole blocks") + 4 * width);
        Case { rows: BLOCK, ..Case::new(format!("{BLOCK} rows of {dtype}"), rig, out, bytes) }
    };
    [DType::F16, DType::Q8_0].map(case).into()
}
