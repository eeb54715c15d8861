//! OLMoE: norms over all heads of queries and keys together, and a mixture in every layer.
//! Paper: <https://arxiv.org/abs/2409.02060>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, QkNorm, Reader},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Score},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?;
    let (gguf, hf) = ("attention.clamp_kqv", "clip_qkv");
    // The published models do without.
    if let Some(limit) = r.settings.number(gguf, hf)?.filter(|&limit| limit != 0.0) {
        return Err(Error::setting(r.settings.name(gguf, hf), format!("{limit}: cut queries are not supported")));
    }
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mixture = MixtureOptions::new(activation, r.routing(Score::Softmax, false)?);
    let options = AttentionOptions { qk_norm: QkNorm::AllHeads, ..r.options(rope) };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.mixture(layer, &mixture)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
