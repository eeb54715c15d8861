//! Gemma 3 (text): five sliding layers to a global one, each kind with its own rotary base; queries and keys are normed.
//! Report: <https://arxiv.org/abs/2503.19786>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, Sizes, USUAL},
    gemma2::{NAMES, query_scale},
    rope::from_config,
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::{Pairing, RopeScaling, RopeSpec},
    spec::Activation,
};

/// Layers of the 27B model, whose query scale GGUF files do not carry.
const LAYERS_27B: usize = 62;

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?
        .with_defaults(Defaults { theta: 1e6, window: Some(4096), tied: true, ..USUAL })
        .with_offset_norms();
    let (global, local) = ropes(&mut r)?;
    let scale = query_scale(&r, LAYERS_27B)?;
    let pattern = r
        .settings
        .count("attention.sliding_window_pattern", "sliding_window_pattern")?
        .or(r.settings.count("", "_sliding_window_pattern")?)
        .filter(|&n| n > 0)
        .unwrap_or(6);
    // As transformers has it: `attn_logit_softcapping` is not looked at.
    let key = "final_logit_softcapping";
    let logit_softcap = r.settings.number(key, key)?.filter(|&cap| cap > 0.0).map(|cap| cap as f32);
    let activation = r.activation("hidden_activation", Activation::GeluTanh)?;
    let mut layers = vec![];
    for (layer, window) in r.windows(|layer| (layer + 1) % pattern != 0)?.into_iter().enumerate() {
        let rope = if window.is_some() { local } else { global };
        let options = AttentionOptions { window, scale, qk_norm: QkNorm::PerHead, ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.sandwich_layer(layer, mixer, feed_forward)?);
    }
    let d_model = r.sizes.d_model;
    Ok(ModelSpec { embedding_scale: (d_model as f32).sqrt(), logit_softcap, ..r.finish(layers)? })
}

/// The rotary embeddings of global and of sliding layers; only the former are ever stretched.
fn ropes(r: &mut Reader<'_>) -> Result<(usize, usize)> {
    let per_layer = r.settings.field("rope_parameters").is_some_and(|p| p.get("sliding_attention").is_some());
    let theta = r.settings.number("rope.freq_base_swa", "rope_local_base_freq")?.unwrap_or(10_000.0);
    let local = if per_layer {
        r.ropes.push(from_config(&r.settings, Some("full_attention"), &r.sizes, Pairing::Halves)?);
        from_config(&r.settings, Some("sliding_attention"), &Sizes { theta, ..r.sizes }, Pairing::Halves)?
    } else {
        r.rope(Pairing::Halves)?;
        RopeSpec { theta, scaling: RopeScaling::None, freq_factors: None, ..r.ropes[0].clone() }
    };
    r.ropes.push(local);
    Ok((0, 1))
}
