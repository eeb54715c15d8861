//! Queries of an 8B llama; tokens are turned by their attention. Made of what is wanted in the end, it is of no layer.

use selkie_model::{
    plan::Op,
    rope::{Pairing, RopeScaling, RopeSpec},
};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (n_heads, head_dim, pairing) = (32, 128, Pairing::Halves);
    let mut rig = Rig::new(1);
    let x = rig.input(n_heads * head_dim);
    let spec = RopeSpec { n_dims: head_dim, theta: 1e4, pairing, scaling: RopeScaling::None, freq_factors: None };
    let (rope, out) = (rig.rope(spec), rig.buffer(n_heads * head_dim));
    rig.op(Op::Rope { x, rope, head_dim, out });
    let bytes = 8 * BLOCK * n_heads * head_dim;
    vec![Case { rows: BLOCK, kernels: &["rope"], ..Case::new(format!("{BLOCK} rows"), rig, out, bytes) }]
}
