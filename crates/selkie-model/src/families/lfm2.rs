//! LFM2: gated short convolutions, a few layers attention with normed queries and keys; with experts in the larger ones,
//! chosen by sigmoids. Report: <https://arxiv.org/abs/2511.23404>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, USUAL},
    mixture::MixtureOptions,
    settings::Settings,
    tensors::Names,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Mixer, Routing, Score, ShortConv},
    weights::Transform,
};

const NAMES: Names = &[
    ("output_norm", "embedding_norm"),
    ("attn_norm", "operator_norm"),
    ("ffn_norm", "ffn_norm"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.out_proj", "conv.out_proj"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_down", "feed_forward.w2"),
    ("ffn_up", "feed_forward.w3"),
    ("ffn_gate_inp", "feed_forward.gate"),
    ("exp_probs_b.bias", "feed_forward.expert_bias"),
    ("ffn_gate.#", "feed_forward.experts.#.w1"),
    ("ffn_down.#", "feed_forward.experts.#.w2"),
    ("ffn_up.#", "feed_forward.experts.#.w3"),
    ("ffn_gate_up_exps.weight", "feed_forward.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "feed_forward.experts.down_proj"),
];

/// What configurations call a layer: whether it attends.
const KINDS: &[(&str, bool)] = &[("conv", false), ("full_attention", true)];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, NAMES, &[])?.with_defaults(Defaults {
        eps: 1e-5,
        theta: 1e6,
        tied: true,
        ..USUAL
    });
    let n_layers = r.sizes.n_layers;
    let kv_heads = r.kv_heads(|r| {
        if let Some(kinds) = r.settings.kinds("layer_types", n_layers, KINDS)? {
            return Ok(kinds);
        }
        let listed = r.settings.layers("full_attn_idxs", n_layers)?;
        Ok((0..n_layers).map(|layer| listed.as_ref().is_none_or(|list| list.contains(&layer))).collect())
    })?;
    let options = if kv_heads.iter().any(|&n| n > 0) {
        let rope = r.rope(Pairing::Halves)?;
        AttentionOptions { qk_norm: QkNorm::PerHead, ..r.options(rope) }
    } else {
        r.options_without_rope()
    };
    let taps = r.settings.size_or("shortconv.l_cache", ("conv_L_cache", 3))?;
    let routing = r.routing(Routing { score: Score::Sigmoid, ..Routing::softmax(true) })?;
    let mixture = MixtureOptions { n_used: Some(4), ..MixtureOptions::new(Activation::Silu, routing) };
    let mut layers = vec![];
    for (layer, n_kv_heads) in kv_heads.into_iter().enumerate() {
        let mixer = match n_kv_heads {
            0 => Mixer::ShortConv(r.short_conv(layer, taps)?),
            n => r.attention_over(layer, n, &options)?,
        };
        let feed_forward = if r.has_mixture(layer) {
            r.mixture(layer, &mixture)?
        } else {
            // Configurations may give a width that is yet to be rounded.
            r.sizes.d_ff = r.rows_of(&format!("blk.{layer}.ffn_up.weight"))?;
            r.dense(layer, Activation::Silu)?
        };
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}

impl Reader<'_> {
    fn short_conv(&mut self, layer: usize, taps: usize) -> Result<ShortConv> {
        let d = self.sizes.d_model;
        let input = format!("blk.{layer}.shortconv.in_proj");
        Ok(ShortConv {
            b: self.linear_rows(&input, 3 * d, d, 0..d)?,
            c: self.linear_rows(&input, 3 * d, d, d..2 * d)?,
            x: self.linear_rows(&input, 3 * d, d, 2 * d..3 * d)?,
            conv: self.conv(&format!("blk.{layer}.shortconv.conv"), [d, taps], false, Transform::None)?,
            out: self.linear(&format!("blk.{layer}.shortconv.out_proj"), d, d)?,
        })
    }
}
