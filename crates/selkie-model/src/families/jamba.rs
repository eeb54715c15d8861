//! Jamba: Mamba-1 with norms inside, every eighth layer attention without positions, every other feed-forward part a
//! mixture whose weights are not made to sum to one. Paper: <https://arxiv.org/abs/2403.19887>.

use selkie_formats::Checkpoint;

use super::{
    decoder::Reader,
    mixture::MixtureOptions,
    recurrent::{InnerNorms, Keys, MAMBA},
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    spec::{Activation, Mixer, Routing},
};

const NAMES: Names = &[
    ("ffn_gate_inp", "feed_forward.router"),
    ("ffn_gate.#", "feed_forward.experts.#.gate_proj"),
    ("ffn_up.#", "feed_forward.experts.#.up_proj"),
    ("ffn_down.#", "feed_forward.experts.#.down_proj"),
    ("ffn_gate_up_exps.weight", "feed_forward.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "feed_forward.experts.down_proj"),
];

const KEYS: Keys = Keys {
    d_inner: "",
    expand: "mamba_expand",
    dt_rank: "mamba_dt_rank",
    d_state: ("mamba_d_state", 16),
    taps: ("mamba_d_conv", 4),
    n_heads: ("", 0),
    head_dim: ("", 0),
    n_groups: ("", 0),
    activation: "hidden_act",
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, NAMES, MAMBA)?;
    let sizes = r.mamba1_sizes(&KEYS)?;
    let kv_heads = r.kv_heads(attending)?;
    let options = r.options_without_rope();
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mixture = MixtureOptions { n_used: Some(2), ..MixtureOptions::new(activation, Routing::softmax(false)) };
    let mut layers = vec![];
    for (layer, n_kv_heads) in kv_heads.into_iter().enumerate() {
        let mixer = match n_kv_heads {
            0 => Mixer::Mamba1(Box::new(r.mamba1(layer, &sizes, &InnerNorms::Weighted)?)),
            n => r.attention_over(layer, n, &options)?,
        };
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}

/// Every `attn_layer_period`th layer, from `attn_layer_offset` on.
fn attending(r: &Reader<'_>) -> Result<Vec<bool>> {
    let n_layers = r.sizes.n_layers;
    let period = r.settings.size_or("", ("attn_layer_period", 8))?;
    let offset = r.settings.count("", "attn_layer_offset")?.unwrap_or(4);
    if offset >= period {
        return Err(Error::setting("attn_layer_offset", format!("is {offset}, not below the period of {period}")));
    }
    Ok((0..n_layers).map(|layer| layer % period == offset).collect())
}
