//! Qwen 1.5 and 2 with experts: a Qwen 2 whose feed-forward parts are mixtures beside a block that every row goes through,
//! weighed by its own gate. Some layers may be dense, which their tensors say. Report: <https://arxiv.org/abs/2407.10671>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Reader},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Score},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?;
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mixture = MixtureOptions::new(activation, r.routing(Score::Softmax, false)?);
    let biased = r.settings.switch("", "qkv_bias", true);
    let mut layers = vec![];
    for (layer, window) in r.upper_windows()?.into_iter().enumerate() {
        let at = |name: &str| format!("blk.{layer}.{name}");
        for bias in ["attn_q.bias", "attn_k.bias", "attn_v.bias"].into_iter().filter(|_| biased) {
            r.tensors.require(&at(bias))?;
        }
        let mixer = r.attention(layer, &AttentionOptions { window, ..r.options(rope) })?;
        let feed_forward = if r.has_mixture(layer) {
            for shared in ["ffn_up_shexp.weight", "ffn_gate_inp_shexp.weight"] {
                r.tensors.require(&at(shared))?;
            }
            r.mixture(layer, &mixture)?
        } else {
            r.dense(layer, activation)?
        };
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
