//! SmolLM 3: a LLaMA in which every fourth layer has no positions. Post: <https://huggingface.co/blog/smollm3>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL, truthy},
    settings::Settings,
};
use crate::{ModelSpec, Result, rope::Pairing, spec::Activation};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, &[])?.with_defaults(Defaults { theta: 2e6, tied: true, ..USUAL });
    let rope = r.rope(Pairing::Interleaved)?;
    let interval = r.settings.count("", "no_rope_layer_interval")?.filter(|&n| n > 0).unwrap_or(4);
    // The list says 1 where a layer does rotate.
    let listed = r.settings.field("no_rope_layers");
    let rotates =
        |layer: usize| listed.and_then(|list| truthy(list, layer)).unwrap_or(!(layer + 1).is_multiple_of(interval));
    let slides = r.settings.flag("use_sliding_window")?;
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for (layer, window) in r.windows(|layer| slides && !rotates(layer))?.into_iter().enumerate() {
        let options = AttentionOptions { window, rope: rotates(layer).then_some(rope), ..r.options(rope) };
        let mixer = r.attention(layer, &options)?;
        let feed_forward = r.dense(layer, activation)?;
        layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
    }
    r.finish(layers)
}
