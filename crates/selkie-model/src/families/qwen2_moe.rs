//! Qwen 1.5 and 2 with experts: a Qwen 2 whose feed-forward parts are mixtures beside a block that every row goes through,
//! weighed by its own gate. Some layers may be dense, which their tensors say. Report: <https://arxiv.org/abs/2407.10671>.

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

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { window: Some(4096), ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = r.routing(Routing::softmax(false))?;
    let mixture = MixtureOptions { n_used: Some(4), ..MixtureOptions::new(activation, routing) };
    let biased = r.settings.switch("", "qkv_bias", true)?;
    let slides = r.settings.flag("use_sliding_window")?;
    let below = r.settings.count("", "max_window_layers")?.unwrap_or(28);
    // Unlike in the dense models, the lower layers slide, and of these every other.
    let windows = match slides {
        true => r.windows(|layer| layer.is_multiple_of(2) && layer < below)?,
        false => vec![None; r.sizes.n_layers],
    };
    let mut layers = vec![];
    for (layer, window) in windows.into_iter().enumerate() {
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
