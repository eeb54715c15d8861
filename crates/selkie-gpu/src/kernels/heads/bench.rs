//! The matrices of DeepSeek-V2-Lite's heads.

use selkie_formats::DType;
use selkie_model::plan::Op;

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (n_heads, head_in, head_out) = (16, 512, 128);
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let x = rig.input(n_heads * head_in);
        let weight = rig.matrix(DType::F16, &[n_heads, head_out, head_in]);
        let out = rig.buffer(n_heads * head_out);
        rig.op(Op::HeadLinear { x, weight, n_heads, out });
        let bytes = n_heads * (2 * head_in * head_out + 4 * rows * (head_in + head_out));
        Case { rows, ..Case::new(name, rig, out, bytes) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
