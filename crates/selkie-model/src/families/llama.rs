//! LLaMA 2 and 3, SmolLM and the many models of that shape; with experts it is Mixtral.
//! Papers: <https://arxiv.org/abs/2307.09288>, <https://arxiv.org/abs/2401.04088>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Routing},
};

/// Mixtral's safetensors: `w1` is the gate, `w2` goes down, `w3` up.
const NAMES: super::tensors::Names = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate.#", "block_sparse_moe.experts.#.w1"),
    ("ffn_down.#", "block_sparse_moe.experts.#.w2"),
    ("ffn_up.#", "block_sparse_moe.experts.#.w3"),
];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?;
    let mut window = None;
    if r.settings.architecture() == "mixtral" {
        r = r.with_defaults(Defaults { eps: 1e-5, theta: 1e6, ..USUAL });
        window = r.window()?;
    }
    let rope = r.rope(Pairing::Interleaved)?;
    let options = AttentionOptions { window, ..r.options(rope) };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mixture = MixtureOptions { n_used: Some(2), ..MixtureOptions::new(activation, Routing::softmax(true)) };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
