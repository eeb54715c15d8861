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
    spec::{Activation, Layer, Routing, Score},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    read_named(settings, checkpoint, &[])
}

/// A Granite under the names of its kind; with experts where it has them.
pub(super) fn read_named(settings: Settings<'_>, checkpoint: &Checkpoint, names: Names) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, names)?;
    let rope = r.rope(Pairing::Interleaved)?;
    let scales = Scales::read(&r.settings)?;
    let default = r.options(rope);
    let options = AttentionOptions { scale: scales.attention.unwrap_or(default.scale), ..default };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = Routing { score: Score::SoftmaxOfChosen, ..Routing::softmax(true) };
    let mixture = MixtureOptions { n_used: Some(2), ..MixtureOptions::new(activation, routing) };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        let layer = r.pre_norm_layer(layer, mixer, feed_forward)?;
        layers.push(scales.layer(layer));
    }
    Ok(scales.model(r.finish(layers)?))
}

/// Granite's scales.
pub(super) struct Scales {
    embedding: f32,
    residual: f32,
    logits: f32,
    /// Of the scores, where a GGUF file tells; configurations that do not mean 1.
    pub attention: Option<f32>,
}

impl Scales {
    pub fn read(s: &Settings<'_>) -> Result<Self> {
        let divisor = s.scale("logit_scale", "logits_scaling", 1.0)?;
        if divisor == 0.0 {
            return Err(Error::setting(s.name("logit_scale", "logits_scaling"), "is 0"));
        }
        let (gguf, hf) = ("attention.scale", "attention_multiplier");
        let told = !s.is_gguf() || s.number(gguf, hf)?.is_some();
        let attention = told.then(|| s.scale(gguf, hf, 1.0)).transpose()?;
        Ok(Self {
            embedding: s.scale("embedding_scale", "embedding_multiplier", 1.0)?,
            residual: s.scale("residual_scale", "residual_multiplier", 1.0)?,
            logits: divisor.recip(),
            attention,
        })
    }

    /// The layer with what it adds scaled.
    pub fn layer(&self, mut layer: Layer) -> Layer {
        layer.mixer.iter_mut().for_each(|block| block.residual_scale = self.residual);
        layer.feed_forward.iter_mut().for_each(|block| block.residual_scale = self.residual);
        layer
    }

    /// The model with its embedding and logits scaled.
    pub fn model(&self, spec: ModelSpec) -> ModelSpec {
        ModelSpec { embedding_scale: self.embedding, logit_scale: self.logits, ..spec }
    }
}
