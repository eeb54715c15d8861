//! Qwen 2 and 2.5: a LLaMA with biases on q, k and v; the upper layers may slide. Report: <https://arxiv.org/abs/2412.15115>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    settings::Settings,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { window: Some(4096), ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for (layer, window) in r.upper_windows()?.into_iter().enumerate() {
        for bias in ["attn_q.bias", "attn_k.bias", "attn_v.bias"] {
            r.tensors.require(&format!("blk.{layer}.{bias}"))?;
        }
        let options = AttentionOptions { window, ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
