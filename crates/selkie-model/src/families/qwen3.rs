//! Qwen 3: queries and keys are normed head by head before the rotation. Report: <https://arxiv.org/abs/2505.09388>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, USUAL},
    settings::Settings,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { window: Some(4096), ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for (layer, window) in r.upper_windows()?.into_iter().enumerate() {
        let options = AttentionOptions { window, qk_norm: QkNorm::PerHead, ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
