//! Granite 3: a LLaMA with scales on the embedding, the scores, what each part adds, and the logits.
//! Models: <https://huggingface.co/ibm-granite>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Reader},
    mixture::MixtureOptions,
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Routing, Score},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    read_named(settings, checkpoint, &[])
}

/// A Granite under the names of its kind; with experts where it has them.
pub(super) fn read_named(settings: Settings<'_>, checkpoint: &Checkpoint, names: Names) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, names)?;
    let rope = r.rope(Pairing::Interleaved)?;
    let number = |gguf: &str, hf: &str| -> Result<Option<f32>> { Ok(r.settings.number(gguf, hf)?.map(|n| n as f32)) };
    let embedding_scale = number("embedding_scale", "embedding_multiplier")?.unwrap_or(1.0);
    let residual_scale = number("residual_scale", "residual_multiplier")?.unwrap_or(1.0);
    let logits_divisor = number("logit_scale", "logits_scaling")?.unwrap_or(1.0);
    if logits_divisor == 0.0 {
        return Err(Error::setting("logits_scaling", "is 0"));
    }
    let scale = number("attention.scale", "attention_multiplier")?;
    let default = r.options(rope);
    let options = AttentionOptions { scale: scale.unwrap_or(default.scale), ..default };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = Routing { score: Score::SoftmaxOfChosen, ..Routing::softmax(true) };
    let mixture = MixtureOptions::new(activation, routing);
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        let mut built = r.pre_norm_layer(layer, mixer, feed_forward)?;
        built.mixer.iter_mut().for_each(|block| block.residual_scale = residual_scale);
        built.feed_forward.iter_mut().for_each(|block| block.residual_scale = residual_scale);
        layers.push(built);
    }
    Ok(ModelSpec { embedding_scale, logit_scale: 1.0 / logits_divisor, ..r.finish(layers)? })
}
