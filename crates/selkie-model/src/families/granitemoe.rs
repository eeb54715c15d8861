//! Granite 3 with experts: Granite's scales, and mixtures whose weights are a softmax over the chosen; with a block that every
//! row goes through in those of its kind. Models: <https://huggingface.co/ibm-granite>.

use selkie_formats::Checkpoint;

use super::{granite, settings::Settings};
use crate::{ModelSpec, Result};

/// In safetensors gate and up are one stack, gate first.
pub(super) const NAMES: super::tensors::Names = &[
    ("ffn_gate_inp", "block_sparse_moe.router.layer"),
    ("ffn_gate_inp", "block_sparse_moe.router"),
    ("ffn_gate_up_exps.weight", "block_sparse_moe.input_linear.weight"),
    ("ffn_gate_up_exps.weight", "block_sparse_moe.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"),
    ("ffn_down_exps.weight", "block_sparse_moe.experts.down_proj"),
    ("ffn_up_shexp", "shared_mlp.input_linear"),
    ("ffn_down_shexp", "shared_mlp.output_linear"),
];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    granite::read_named(settings, checkpoint, NAMES)
}
