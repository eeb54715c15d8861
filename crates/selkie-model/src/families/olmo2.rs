//! OLMo 2: no norm before a part but one after it; queries and keys are normed over all heads together.
//! Report: <https://arxiv.org/abs/2501.00656>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, QkNorm, Reader, USUAL, block},
    settings::Settings,
    tensors::Names,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Layer},
};

const NAMES: Names =
    &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let rope = r.rope(Pairing::Halves)?;
    let options = AttentionOptions { qk_norm: QkNorm::AllHeads, ..r.options(rope) };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(Layer {
            shared: None,
            mixer: Some(block(None, mixer, Some(r.norm(layer, "post_attention_norm")?))),
            feed_forward: Some(block(None, feed_forward, Some(r.norm(layer, "post_ffw_norm")?))),
        });
    }
    r.finish(layers)
}
