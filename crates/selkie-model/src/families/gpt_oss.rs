//! gpt-oss: windows in every other layer, a sink beside the scores of each head, biases everywhere, and experts whose gate and up
//! are cut. Published safetensors hold the experts as MXFP4 blocks, which stay what they are; gate and up take turns in them.
//! Card: <https://arxiv.org/abs/2508.10925>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL, block},
    mixture::MixtureOptions,
    settings::Settings,
};
use crate::{
    Error, ModelSpec, Result,
    rope::{Pairing, RopeScaling},
    spec::{Activation, Gating, Layer, Mixer, Routing, Score},
};

const NAMES: super::tensors::Names = &[
    ("attn_sinks.weight", "self_attn.sinks"),
    ("ffn_gate_inp", "mlp.router"),
    ("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    ("ffn_gate_up_exps.bias", "mlp.experts.gate_up_proj_bias"),
    ("ffn_gate_up_exps.blocks", "mlp.experts.gate_up_proj_blocks"),
    ("ffn_gate_up_exps.scales", "mlp.experts.gate_up_proj_scales"),
    ("ffn_down_exps.weight", "mlp.experts.down_proj"),
    ("ffn_down_exps.bias", "mlp.experts.down_proj_bias"),
    ("ffn_down_exps.blocks", "mlp.experts.down_proj_blocks"),
    ("ffn_down_exps.scales", "mlp.experts.down_proj_scales"),
];

/// How positions are stretched where the configuration says nothing of them.
const USUAL_SCALING: RopeScaling = RopeScaling::Yarn {
    factor: 32.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    // 0.1·ln(factor) + 1
    attention_factor: 1.346_573_590_279_972_7,
    truncate: false,
    context: 4096,
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::new(settings, checkpoint, NAMES)?.with_defaults(Defaults {
        eps: 1e-5,
        theta: 150_000.0,
        window: Some(128),
        ..USUAL
    });
    let rope = r.rope(Pairing::Halves)?;
    if !r.settings.is_gguf() && r.settings.field("rope_parameters|rope_scaling").is_none() {
        r.ropes[rope].scaling = USUAL_SCALING;
    }
    // GGUF cannot say it: this ramp's ends are no whole pairs.
    if let (true, RopeScaling::Yarn { truncate, .. }) = (r.settings.is_gguf(), &mut r.ropes[rope].scaling) {
        *truncate = false;
    }
    let (alpha, limit) = (r.settings.scale("", "swiglu_alpha", 1.702)?, r.settings.scale("", "swiglu_limit", 7.0)?);
    if limit <= 0.0 {
        return Err(Error::setting("swiglu_limit", format!("is {limit}")));
    }
    let routing = Routing { score: Score::SoftmaxOfChosen, ..Routing::softmax(true) };
    let mixture = MixtureOptions {
        gating: Gating::ClampedSwiglu { alpha, limit },
        interleaved: true,
        n_used: Some(4),
        ..MixtureOptions::new(Activation::Silu, routing)
    };
    let heads = [r.sizes.n_heads];
    let mut layers = vec![];
    for (layer, window) in r.windows(|layer| layer.is_multiple_of(2))?.into_iter().enumerate() {
        let at = |name: &str| format!("blk.{layer}.{name}");
        let mut mixer = r.attention(layer, &AttentionOptions { window, ..r.options(rope) })?;
        if let Mixer::Attention(attention) = &mut mixer {
            attention.sinks = Some(r.tensors.weight(&at("attn_sinks.weight"), &heads)?);
        }
        for bias in ["ffn_gate_inp.bias", "ffn_down_exps.bias"] {
            r.tensors.require(&at(bias))?;
        }
        let feed_forward = r.mixture(layer, &mixture)?;
        // GGUF calls the second norm by its place.
        let second = if r.settings.is_gguf() { "post_attention_norm" } else { "ffn_norm" };
        layers.push(Layer {
            shared: None,
            mixer: Some(block(Some(r.norm(layer, "attn_norm")?), mixer, None)),
            feed_forward: Some(block(Some(r.norm(layer, second)?), feed_forward, None)),
        });
    }
    r.finish(layers)
}
