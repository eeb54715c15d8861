//! Gemma 2: norms around each part, every other layer slides, scores and logits are capped, the embedding is scaled by
//! `sqrt(d_model)`. Report: <https://arxiv.org/abs/2408.00118>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    settings::Settings,
    tensors::Names,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

/// Names in safetensors that differ from a LLaMA's: the norm after attention is no longer the one before the MLP.
pub(super) const NAMES: Names = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Layers of the 27B models, whose query scale GGUF files do not carry.
const LAYERS_27B: usize = 46;

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?
        .with_defaults(Defaults { window: Some(4096), tied: true, ..USUAL })
        .with_offset_norms();
    let rope = r.rope(Pairing::Halves)?;
    let scale = query_scale(&r, LAYERS_27B)?;
    // Files of either format may leave the caps out where they are the published ones.
    let cap = |r: &Reader<'_>, gguf: &str, hf: &str, default: f64| -> Result<Option<f32>> {
        let silent = r.settings.is_gguf() || r.settings.leaves_out(hf);
        let found = r.settings.number(gguf, hf)?.or(silent.then_some(default));
        Ok(found.filter(|&c| c > 0.0).map(|c| c as f32))
    };
    let softcap = cap(&r, "attn_logit_softcapping", "attn_logit_softcapping", 50.0)?;
    let logit_softcap = cap(&r, "final_logit_softcapping", "final_logit_softcapping", 30.0)?;
    let activation = r.activation("hidden_activation", Activation::GeluTanh)?;
    let mut layers = vec![];
    for (layer, window) in r.windows(|layer| layer % 2 == 0)?.into_iter().enumerate() {
        let options = AttentionOptions { window, scale, softcap, ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.sandwich_layer(layer, mixer, feed_forward)?);
    }
    let d_model = r.sizes.d_model;
    Ok(ModelSpec { embedding_scale: (d_model as f32).sqrt(), logit_softcap, ..r.finish(layers)? })
}

/// Gemma's scale of the scores: `query_pre_attn_scalar^-½`, which is 256 where a configuration leaves it out. GGUF files do
/// not carry it; it is the width of a head except in the 27B models, where it is `d_model / n_heads`.
pub(super) fn query_scale(r: &Reader<'_>, layers_27b: usize) -> Result<f32> {
    let sizes = &r.sizes;
    let default = match r.settings.is_gguf() {
        true if sizes.n_layers == layers_27b => sizes.d_model / sizes.n_heads,
        true => sizes.head_dim,
        false => 256,
    };
    let scalar = r.settings.number("", "query_pre_attn_scalar")?.filter(|&s| s > 0.0).unwrap_or(default as f64);
    Ok(scalar.powf(-0.5) as f32)
}
