//! The widest matrices of an 8B llama.

use selkie_formats::DType;
use selkie_model::plan::{Op, Product};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (d_model, d_ff) = (4096, 14_336);
    let case = |dtype: DType, name: &str, rows: usize| {
        let mut rig = Rig::new(1);
        let x = rig.input(d_model);
        let (weight, out) = (rig.matrix(dtype, &[d_ff, d_model]), rig.buffer(d_ff));
        rig.op(Op::Linear { x, product: Product { weight, bias: None, out } });
        let bytes = d_ff * dtype.row_bytes(d_model).expect("whole blocks") + 4 * rows * (d_model + d_ff);
        Case { rows, ..Case::new(format!("{name} by {dtype}"), rig, out, bytes) }
    };
    let tokens = [DType::F16, DType::Q8_0, DType::Q4_K].map(|dtype| case(dtype, "a token", 1));
    tokens.into_iter().chain([case(DType::Q8_0, &format!("{BLOCK} rows"), BLOCK)]).collect()
}
