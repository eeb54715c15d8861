//! Experts of Qwen3-30B-A3B, fewer of them.

use selkie_formats::DType;
use selkie_model::{
    plan::Op,
    spec::{Activation, Gating, Mixture, Routing},
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (n_experts, n_used, d_model, d_ff, dtype) = (32, 8, 2048, 768, DType::Q8_0);
    let case = |name: String, rows: usize| {
        let mut rig = Rig::new(1);
        let x = rig.input(d_model);
        let mixture = Mixture {
            router: rig.vector(&[n_experts, d_model]),
            router_bias: None,
            gate: Some(rig.matrix(dtype, &[n_experts, d_ff, d_model])),
            up: rig.matrix(dtype, &[n_experts, d_ff, d_model]),
            down: rig.matrix(dtype, &[n_experts, d_model, d_ff]),
            biases: None,
            gating: Gating::Plain(Activation::Silu),
            n_experts,
            n_used,
            d_ff,
            routing: Routing::softmax(true),
        };
        let out = rig.buffer(d_model);
        rig.op(Op::Mixture { x, mixture, out });
        let experts = (rows * n_used).min(n_experts);
        let expert = dtype.row_bytes(3 * d_model * d_ff).expect("whole blocks");
        Case { rows, ..Case::new(name, rig, out, experts * expert + 8 * rows * d_model) }
    };
    vec![case("a token".into(), 1), case(format!("{BLOCK} rows"), BLOCK)]
}
