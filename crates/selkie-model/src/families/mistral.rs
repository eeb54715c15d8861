//! Mistral: a LLaMA whose layers may look at a sliding window. Paper: <https://arxiv.org/abs/2310.06825>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    settings::Settings,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { window: Some(4096), ..USUAL });
    let rope = r.rope(Pairing::Interleaved)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for (layer, window) in r.windows(|_| true)?.into_iter().enumerate() {
        let options = AttentionOptions { window, ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
