//! Granite 4: Mamba-2 with a few attention layers, mostly without positions, Granite's scales, and a block that every row
//! goes through, beside a mixture or alone. GGUF files of Bamba come as this family too.
//! Models: <https://huggingface.co/ibm-granite>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Reader},
    granite::Scales,
    granitemoe,
    mixture::MixtureOptions,
    recurrent::{BAMBA_KEYS, MAMBA},
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, FeedForward, Mixer, Routing, Score},
};

/// What configurations call a layer: whether it attends.
const KINDS: &[(&str, bool)] =
    &[("mamba", false), ("linear_attention", false), ("attention", true), ("full_attention", true)];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, granitemoe::NAMES, MAMBA)?;
    let sizes = r.mamba2_sizes(&BAMBA_KEYS)?;
    let scales = Scales::read(&r.settings)?;
    let kv_heads = r.kv_heads(|r| {
        let n_layers = r.sizes.n_layers;
        let kinds = r.settings.kinds("layer_types|layers_block_type", n_layers, KINDS)?;
        Ok(kinds.unwrap_or_else(|| vec![false; n_layers]))
    })?;
    let turns = r.settings.is_gguf() && r.settings.switch("rope.scaling.finetuned", "", false)?
        || r.settings.word("", "position_embedding_type")? == Some("rope");
    let rope = if turns && kv_heads.iter().any(|&n| n > 0) { Some(r.rope(Pairing::Interleaved)?) } else { None };
    let default = r.options_without_rope();
    let options = AttentionOptions { rope, scale: scales.attention.unwrap_or(default.scale), ..default };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = Routing { score: Score::SoftmaxOfChosen, ..Routing::softmax(true) };
    let mixture = MixtureOptions { n_used: Some(2), ..MixtureOptions::new(activation, routing) };
    let mut layers = vec![];
    for (layer, n_kv_heads) in kv_heads.into_iter().enumerate() {
        let mixer = match n_kv_heads {
            0 => Mixer::Mamba2(Box::new(r.mamba2(layer, &sizes)?)),
            n => r.attention_over(layer, n, &options)?,
        };
        let feed_forward = if r.has_mixture(layer) {
            r.mixture(layer, &mixture)?
        } else if let Some(shared) = r.shared_block(layer, &mixture)? {
            FeedForward::Dense(shared)
        } else {
            // GGUF files call a block without experts beside it by the plain names.
            r.sizes.d_ff = r.rows_of(&format!("blk.{layer}.ffn_up.weight"))?;
            r.dense(layer, activation)?
        };
        layers.push(scales.layer(r.pre_norm_layer(layer, mixer, feed_forward)?));
    }
    Ok(scales.model(r.finish(layers)?))
}
