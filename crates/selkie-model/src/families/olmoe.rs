//! OLMoE: norms over all heads of queries and keys together, and a mixture in every layer.
//! Paper: <https://arxiv.org/abs/2409.02060>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, USUAL},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Routing},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let clip = r.clip()?;
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = r.routing(Routing::softmax(false))?;
    let mixture = MixtureOptions { n_used: Some(8), ..MixtureOptions::new(activation, routing) };
    let options = AttentionOptions { qk_norm: QkNorm::AllHeads, clip, ..r.options(rope) };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.mixture(layer, &mixture)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}

impl Reader<'_> {
    /// Within what queries, keys and values are held; the published models do without.
    fn clip(&self) -> Result<Option<f32>> {
        let (s, gguf, hf) = (&self.settings, "attention.clamp_kqv", "clip_qkv");
        // GGUF writes 0 for none.
        match s.number(gguf, hf)?.filter(|&limit| !(s.is_gguf() && limit == 0.0)) {
            Some(limit) if limit >= 0.0 && limit.is_finite() => Ok(Some(limit as f32)),
            Some(limit) => Err(Error::setting(s.name(gguf, hf), format!("is {limit}"))),
            None => Ok(None),
        }
    }
}
