//! Phi-3 and Phi-4-mini: q, k and v in one product, gate and up in another; LongRoPE, perhaps on a part of each head.
//! Report: <https://arxiv.org/abs/2404.14219>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    settings::Settings,
    tensors::Names,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

const NAMES: Names = &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
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
