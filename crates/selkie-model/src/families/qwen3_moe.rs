//! Qwen 3 with experts: a Qwen 3 whose feed-forward parts are mixtures, but for the layers whose tensors say otherwise.
//! Report: <https://arxiv.org/abs/2505.09388>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, USUAL},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Routing},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { window: Some(4096), ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    // GGUF files do not say: every published model's weights sum to one.
    let mixture = MixtureOptions::new(activation, r.routing(Routing::softmax(r.settings.is_gguf()))?);
    let mixture = MixtureOptions { n_used: Some(8), ..mixture };
    let window = if r.settings.flag("use_sliding_window")? { r.window()? } else { None };
    let options = AttentionOptions { window, qk_norm: QkNorm::PerHead, ..r.options(rope) };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
