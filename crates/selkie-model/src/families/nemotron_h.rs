//! Nemotron-H: layers of one part each, which is Mamba-2, attention without positions, an MLP without a gate, or a mixture of
//! such. Paper: <https://arxiv.org/abs/2504.03624>.

use selkie_formats::Checkpoint;
use serde_json::Value;

use super::{
    decoder::{Defaults, Reader, USUAL, block},
    mixture::MixtureOptions,
    recurrent::{Keys, MIXER},
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    spec::{Activation, Dense, FeedForward, Layer, Mixer, Routing, Score},
};

const NAMES: Names = &[
    ("attn_q", "mixer.q_proj"),
    ("attn_k", "mixer.k_proj"),
    ("attn_v", "mixer.v_proj"),
    ("attn_output", "mixer.o_proj"),
    ("ffn_up", "mixer.up_proj"),
    ("ffn_down", "mixer.down_proj"),
    ("ffn_gate_inp", "mixer.gate"),
    ("exp_probs_b.bias", "mixer.gate.e_score_correction_bias"),
    ("ffn_up.#", "mixer.experts.#.up_proj"),
    ("ffn_down.#", "mixer.experts.#.down_proj"),
    ("ffn_up_exps.weight", "mixer.experts.up_proj"),
    ("ffn_down_exps.weight", "mixer.experts.down_proj"),
    ("ffn_up_shexp", "mixer.shared_experts.up_proj"),
    ("ffn_down_shexp", "mixer.shared_experts.down_proj"),
    ("ffn_latent_down", "mixer.fc1_latent_proj"),
];

const KEYS: Keys = Keys {
    d_inner: "",
    expand: "expand",
    dt_rank: "",
    d_state: ("ssm_state_size", 128),
    taps: ("conv_kernel|mamba_d_conv", 4),
    n_heads: ("mamba_num_heads", 128),
    head_dim: ("mamba_head_dim", 64),
    n_groups: ("n_groups|mamba_n_groups", 8),
    activation: "mamba_hidden_act",
};

/// Where configurations say what each layer is.
const LISTS: &str = "layers_block_type|layer_types|hybrid_override_pattern";

/// What a layer is.
#[derive(Clone, Copy)]
enum Kind {
    Mamba,
    Attention,
    Mlp,
    Mixture,
}

const KINDS: &[(&str, Kind)] = &[
    ("mamba", Kind::Mamba),
    ("linear_attention", Kind::Mamba),
    ("attention", Kind::Attention),
    ("full_attention", Kind::Attention),
    ("mlp", Kind::Mlp),
    ("moe", Kind::Mixture),
];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, NAMES, MIXER)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let (n_layers, listed) = (r.sizes.n_layers, r.listed_layers());
    if listed != n_layers {
        tracing::warn!("`num_hidden_layers` is {n_layers}, but {listed} layers are listed; taken as the list has them");
        r.sizes.n_layers = listed;
    }
    let mut sizes = r.mamba2_sizes(&KEYS)?;
    if !r.settings.is_gguf() {
        // As transformers has it: `time_step_limit` is not looked at.
        (sizes.shape.dt_min, sizes.shape.dt_max) = (r.least_time_step("time_step_min|mamba_dt_min")?, f32::INFINITY);
    }
    let kinds = r.schedule()?;
    let options = r.options_without_rope();
    let activation = r.activation("mlp_hidden_act", Activation::ReluSquared)?;
    let routing = r.routing(Routing { score: Score::Sigmoid, ..Routing::softmax(true) })?;
    let mixture = MixtureOptions { gated: false, n_used: Some(2), ..MixtureOptions::new(activation, routing) };
    let mut layers = vec![];
    for (layer, (kind, width)) in kinds.into_iter().enumerate() {
        let at = |name: &str| format!("blk.{layer}.{name}");
        layers.push(match kind {
            Kind::Mamba => {
                let mixer = Mixer::Mamba2(Box::new(r.mamba2(layer, &sizes)?));
                r.mixer_layer(layer, mixer)?
            }
            Kind::Attention => {
                let mixer = r.attention_over(layer, width, &options)?;
                r.mixer_layer(layer, mixer)?
            }
            Kind::Mlp => {
                let up = r.linear(&at("ffn_up"), width, r.sizes.d_model)?;
                let down = r.linear(&at("ffn_down"), r.sizes.d_model, width)?;
                let dense = Dense { gate: None, gate_scale: 1.0, up, down, activation };
                r.feed_forward_layer(layer, FeedForward::Dense(dense))?
            }
            Kind::Mixture => {
                let projected = r.settings.count("moe_latent_size", "moe_latent_size")?.filter(|&n| n > 0);
                if let Some(width) = projected {
                    let what = format!("is {width}: experts in a space of their own are not supported");
                    return Err(Error::setting(r.settings.name("moe_latent_size", "moe_latent_size"), what));
                }
                if let Some(found) = r.tensors.find(&at("ffn_latent_down.weight")) {
                    let what = "experts in a space of their own are not supported".into();
                    return Err(Error::Tensor { tensor: found.name.clone(), what });
                }
                let feed_forward = r.mixture(layer, &mixture)?;
                r.feed_forward_layer(layer, feed_forward)?
            }
        });
    }
    r.finish(layers)
}

impl Reader<'_> {
    /// Layers that the configuration's list has, or its letters; as many as there are where it has neither.
    fn listed_layers(&self) -> usize {
        match self.settings.field(LISTS) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::String(letters)) => letters.chars().count(),
            _ => self.sizes.n_layers,
        }
    }

    /// What each layer is, with its key heads or its width.
    fn schedule(&self) -> Result<Vec<(Kind, usize)>> {
        let (s, n_layers) = (&self.settings, self.sizes.n_layers);
        if s.is_gguf() {
            let list = |key: &str| Ok::<_, Error>(s.counts(key, "", n_layers)?.unwrap_or_else(|| vec![0; n_layers]));
            let (kv_heads, widths) = (list("attention.head_count_kv")?, list("feed_forward_length")?);
            let kind = |(layer, (n_kv_heads, width)): (usize, (usize, usize))| match (n_kv_heads, width) {
                (0, _) if self.has_mixture(layer) => (Kind::Mixture, width),
                (0, 0) => (Kind::Mamba, 0),
                (0, width) => (Kind::Mlp, width),
                (n, _) => (Kind::Attention, n),
            };
            return Ok(kv_heads.into_iter().zip(widths).enumerate().map(kind).collect());
        }
        let kinds = match s.kinds("layers_block_type|layer_types", n_layers, KINDS)? {
            Some(kinds) => kinds,
            None => self.pattern()?,
        };
        let size = |kind: Kind| match kind {
            Kind::Attention => self.sizes.n_kv_heads,
            _ => self.sizes.d_ff,
        };
        Ok(kinds.into_iter().map(|kind| (kind, size(kind))).collect())
    }

    /// What each layer is, by one letter each.
    fn pattern(&self) -> Result<Vec<Kind>> {
        let key = "hybrid_override_pattern";
        let bad = |what: String| Error::setting(key, what);
        let pattern = self.settings.word("", key)?.ok_or_else(|| bad("is missing".into()))?;
        let (n, n_layers) = (pattern.chars().count(), self.sizes.n_layers);
        if n != n_layers {
            return Err(bad(format!("has {n} letters, one for each of {n_layers} layers is wanted")));
        }
        let kind = |(layer, letter): (usize, char)| match letter {
            'M' => Ok(Kind::Mamba),
            '*' => Ok(Kind::Attention),
            '-' => Ok(Kind::Mlp),
            'E' => Ok(Kind::Mixture),
            other => Err(bad(format!("layer {layer}: `{other}` is not known (M, *, - and E are)"))),
        };
        pattern.chars().enumerate().map(kind).collect()
    }

    /// A layer of a norm and a feed-forward part. The norm has the name of a mixer's.
    fn feed_forward_layer(&mut self, layer: usize, feed_forward: FeedForward) -> Result<Layer> {
        let feed_forward = Some(block(Some(self.norm(layer, "attn_norm")?), feed_forward, None));
        Ok(Layer { shared: None, mixer: None, feed_forward })
    }
}
