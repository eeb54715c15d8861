//! Bamba: Mamba-2, a few layers attention that turns half of each head, a gated MLP in all. GGUF files of it are
//! `granitehybrid`. Post: <https://huggingface.co/blog/bamba>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{Defaults, Reader, USUAL},
    recurrent::{BAMBA_KEYS, MAMBA},
    settings::Settings,
};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Mixer},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    // Configurations older than the field turn a half of each head.
    let defaults = Defaults { eps: 1e-5, rotary_part: 0.5, ..USUAL };
    let mut r = Reader::hybrid(settings, checkpoint, &[], MAMBA)?.with_defaults(defaults);
    let sizes = r.mamba2_sizes(&BAMBA_KEYS)?;
    let attending = r.settings.layers("attn_layer_indices", r.sizes.n_layers)?.unwrap_or_default();
    let options = if attending.is_empty() {
        r.options_without_rope()
    } else {
        let rope = r.rope(Pairing::Halves)?;
        r.options(rope)
    };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = if attending.contains(&layer) {
            r.attention(layer, &options)?
        } else {
            Mixer::Mamba2(Box::new(r.mamba2(layer, &sizes)?))
        };
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
