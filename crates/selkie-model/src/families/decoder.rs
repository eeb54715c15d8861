//! What the transformer families share: sizes, attention, feed-forward parts, embedding and head.

use serde_json::Value;

use super::{
    settings::Settings,
    tensors::{Names, Tensors},
};
use crate::{
    Error, Result,
    rope::{Pairing, RopeSpec},
    spec::{Activation, Attention, Block, Dense, FeedForward, Layer, Linear, Mixer, ModelSpec, Norm},
    weights::Transform,
};
use selkie_formats::Checkpoint;

/// The sizes of a decoder. Those of the heads are 0 where no layer attends.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub d_model: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    /// Of the layers that attend.
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Of the widest layer, where they differ.
    pub d_ff: usize,
    pub eps: f32,
    /// The rotary base where a configuration has none.
    pub theta: f64,
    /// The part of a head's channels that turn where a configuration does not say.
    pub rotary_part: f64,
    pub context: Option<usize>,
}

/// What a family's class in transformers has where a configuration leaves it out. GGUF files have defaults of their own.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    /// Of norms.
    pub eps: f32,
    /// The rotary base.
    pub theta: f64,
    /// The part of a head's channels that turn.
    pub rotary_part: f64,
    /// The sliding window.
    pub window: Option<usize>,
    /// Whether embedding and head are tied.
    pub tied: bool,
}

/// The defaults of most families.
pub(crate) const USUAL: Defaults = Defaults { eps: 1e-6, theta: 10_000.0, rotary_part: 1.0, window: None, tied: false };

/// What configurations call the number of layers.
const N_LAYERS: &str = "num_hidden_layers|n_layer|n_layers";

/// What files call the norms' epsilon.
const EPS: (&str, &str) = (
    "attention.layer_norm_rms_epsilon|attention.layer_norm_epsilon",
    "rms_norm_eps|norm_eps|layer_norm_epsilon|norm_epsilon",
);

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

/// Norms of queries and keys before the rotation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNorm {
    None,
    /// Each head by itself, one weight for all (Qwen 3, Gemma 3).
    PerHead,
    /// All heads together (OLMo 2).
    AllHeads,
}

/// How an attention layer differs from its neighbours.
pub(crate) struct AttentionOptions {
    pub rope: Option<usize>,
    pub window: Option<usize>,
    pub scale: f32,
    pub softcap: Option<f32>,
    pub qk_norm: QkNorm,
    /// Queries, keys and values are cut to within this.
    pub clip: Option<f32>,
}

/// Reads a decoder from a checkpoint, piece by piece.
pub(crate) struct Reader<'a> {
    pub settings: Settings<'a>,
    pub tensors: Tensors<'a>,
    pub sizes: Sizes,
    pub ropes: Vec<RopeSpec>,
    /// Norm weights are stored as offsets from one.
    norm_offset: bool,
    defaults: Defaults,
}

impl<'a> Reader<'a> {
    pub fn new(settings: Settings<'a>, checkpoint: &'a Checkpoint, names: Names) -> Result<Self> {
        let sizes = Sizes::read(&settings)?;
        Self::with_sizes(settings, checkpoint, [names, &[]], sizes)
    }

    /// For a model of which some layers attend, or none: sizes of attention may be missing, counts may be lists with one for
    /// each layer. What `names` does not translate `shared` may.
    pub fn hybrid(settings: Settings<'a>, checkpoint: &'a Checkpoint, names: Names, shared: Names) -> Result<Self> {
        let sizes = Sizes::of_hybrid(&settings)?;
        Self::with_sizes(settings, checkpoint, [names, shared], sizes)
    }

    /// For a model with latent attention: the width of a head is that of the part which turns.
    pub fn latent(settings: Settings<'a>, checkpoint: &'a Checkpoint, names: Names) -> Result<Self> {
        let sizes = Sizes::of_latent(&settings)?;
        Self::with_sizes(settings, checkpoint, [names, &[]], sizes)
    }

    fn with_sizes(settings: Settings<'a>, checkpoint: &'a Checkpoint, names: [Names; 2], sizes: Sizes) -> Result<Self> {
        let tensors = Tensors::new(checkpoint, names, settings.record().cloned())?;
        // Before anything is made for each layer: a wrong count must not cost memory.
        let (layers, n_tensors) = (sizes.n_layers, checkpoint.tensors().len());
        if layers > n_tensors {
            let what = format!("{layers} layers, but the file has only {n_tensors} tensors");
            return Err(Error::setting(settings.name("block_count", N_LAYERS), what));
        }
        let reader = Self { settings, tensors, sizes, ropes: vec![], norm_offset: false, defaults: USUAL };
        Ok(reader.with_defaults(USUAL))
    }

    /// Gemma's safetensors store norm weights as offsets from one; its GGUF files do not.
    pub fn with_offset_norms(mut self) -> Self {
        self.norm_offset = !self.settings.is_gguf();
        self
    }

    /// What the family has where a configuration leaves it out, if that is not [`USUAL`].
    pub fn with_defaults(mut self, defaults: Defaults) -> Self {
        if !self.settings.is_gguf() {
            if self.settings.field(EPS.1).is_none() {
                self.sizes.eps = defaults.eps;
            }
            self.sizes.theta = defaults.theta;
            self.sizes.rotary_part = defaults.rotary_part;
            self.defaults = defaults;
        }
        self
    }

    /// The rotary embedding of the settings, at the end of the list; returns its index.
    ///
    /// GGUF files of the llama kind have q and k rows reordered so that pairs are neighbours; safetensors never.
    pub fn rope(&mut self, gguf_pairing: Pairing) -> Result<usize> {
        if let Some(record) = self.settings.record() {
            record.pairing(gguf_pairing);
        }
        let pairing = if self.settings.is_gguf() { gguf_pairing } else { Pairing::Halves };
        let rope = super::rope::read(&self.settings, &mut self.tensors, &self.sizes, pairing)?;
        self.ropes.push(rope);
        Ok(self.ropes.len() - 1)
    }

    /// The usual options: every earlier position, `1 / sqrt(head_dim)`.
    pub fn options(&self, rope: usize) -> AttentionOptions {
        let scale = (self.sizes.head_dim as f32).sqrt().recip();
        AttentionOptions { rope: Some(rope), window: None, scale, softcap: None, qk_norm: QkNorm::None, clip: None }
    }

    /// The same without positions.
    pub fn options_without_rope(&self) -> AttentionOptions {
        AttentionOptions { rope: None, ..self.options(0) }
    }

    /// The sliding window of the layers that have one.
    pub fn window(&self) -> Result<Option<usize>> {
        let (gguf, hf) = ("attention.sliding_window", "sliding_window");
        let default = self.defaults.window.filter(|_| self.settings.leaves_out(hf));
        Ok(self.settings.count(gguf, hf)?.or(default).filter(|&window| window > 0))
    }

    /// The sliding window of each layer. `layer_types` in the configuration decides; else `slides`, by layer index.
    pub fn windows(&self, slides: impl Fn(usize) -> bool) -> Result<Vec<Option<usize>>> {
        let Some(window) = self.window()? else { return Ok(vec![None; self.sizes.n_layers]) };
        if let Some(types) = self.settings.field("layer_types") {
            let bad =
                || Error::setting("layer_types", "is not a list with `full_attention` or `sliding_attention` a layer");
            let types = types.as_array().filter(|t| t.len() == self.sizes.n_layers).ok_or_else(bad)?;
            return types
                .iter()
                .map(|t| match t.as_str() {
                    Some("sliding_attention") => Ok(Some(window)),
                    Some("full_attention") => Ok(None),
                    _ => Err(bad()),
                })
                .collect();
        }
        Ok((0..self.sizes.n_layers).map(|layer| slides(layer).then_some(window)).collect())
    }

    /// Qwen's windows: where switched on, the layers from `max_window_layers` up slide. GGUF files carry none.
    pub fn upper_windows(&self) -> Result<Vec<Option<usize>>> {
        if !self.settings.flag("use_sliding_window")? {
            return Ok(vec![None; self.sizes.n_layers]);
        }
        let first = self.settings.count("", "max_window_layers")?.unwrap_or(28);
        self.windows(|layer| layer >= first)
    }

    /// Norm `name` of layer `layer`, `[d_model]`.
    pub fn norm(&mut self, layer: usize, name: &str) -> Result<Norm> {
        self.norm_of(&format!("blk.{layer}.{name}.weight"), self.sizes.d_model)
    }

    /// Norm `short`, over groups of `width` values.
    pub fn norm_of(&mut self, short: &str, width: usize) -> Result<Norm> {
        let transform = if self.norm_offset { Transform::AddOne } else { Transform::None };
        let weight = self.tensors.transformed(short, &[width], transform)?;
        Ok(Norm { weight: Some(weight), group: width, eps: self.sizes.eps })
    }

    /// A product `[out, input]`, with its bias where the file has one.
    pub fn linear(&mut self, short: &str, out: usize, input: usize) -> Result<Linear> {
        let weight = self.tensors.weight(&format!("{short}.weight"), &[out, input])?;
        let bias = self.tensors.optional(&format!("{short}.bias"), &[out])?;
        Ok(Linear { weight, bias, low_rank: None })
    }

    /// Some rows of a fused product `[total, input]`.
    pub fn linear_rows(
        &mut self,
        short: &str,
        total: usize,
        input: usize,
        rows: std::ops::Range<usize>,
    ) -> Result<Linear> {
        let weight = self.tensors.rows(&format!("{short}.weight"), &[total, input], rows.clone())?;
        let bias = format!("{short}.bias");
        let bias = if self.tensors.has(&bias) { Some(self.tensors.rows(&bias, &[total], rows)?) } else { None };
        Ok(Linear { weight, bias, low_rank: None })
    }

    /// The attention of layer `layer`; q, k and v in one tensor where the file has them so.
    pub fn attention(&mut self, layer: usize, options: &AttentionOptions) -> Result<Mixer> {
        let Sizes { d_model, n_heads, n_kv_heads, head_dim, .. } = self.sizes;
        if n_heads == 0 {
            let key = self.settings.name("attention.head_count", "num_attention_heads");
            return Err(Error::setting(key, format!("is 0 or missing, but layer {layer} attends")));
        }
        let (q_width, kv_width) = (n_heads * head_dim, n_kv_heads * head_dim);
        let at = |name: &str| format!("blk.{layer}.{name}");
        let (q, k, v) = if self.tensors.has(&at("attn_qkv.weight")) {
            let fused = at("attn_qkv");
            let total = q_width + 2 * kv_width;
            (
                self.linear_rows(&fused, total, d_model, 0..q_width)?,
                self.linear_rows(&fused, total, d_model, q_width..q_width + kv_width)?,
                self.linear_rows(&fused, total, d_model, q_width + kv_width..total)?,
            )
        } else {
            (
                self.linear(&at("attn_q"), q_width, d_model)?,
                self.linear(&at("attn_k"), kv_width, d_model)?,
                self.linear(&at("attn_v"), kv_width, d_model)?,
            )
        };
        let (q_norm, k_norm) = match options.qk_norm {
            QkNorm::None => (None, None),
            QkNorm::PerHead => (
                Some(self.norm_of(&at("attn_q_norm.weight"), head_dim)?),
                Some(self.norm_of(&at("attn_k_norm.weight"), head_dim)?),
            ),
            QkNorm::AllHeads => (
                Some(self.norm_of(&at("attn_q_norm.weight"), q_width)?),
                Some(self.norm_of(&at("attn_k_norm.weight"), kv_width)?),
            ),
        };
        let o = self.linear(&at("attn_output"), d_model, q_width)?;
        Ok(Mixer::Attention(Box::new(Attention {
            q,
            k,
            v,
            o,
            gate: None,
            conv: None,
            q_norm,
            k_norm,
            n_heads,
            n_kv_heads,
            head_dim,
            rope: options.rope,
            scale: options.scale,
            softcap: options.softcap,
            window: options.window,
            clip: options.clip,
            sinks: None,
        })))
    }

    /// For a recurrent layer, whose convolution and gate go by the field `key`: plans have these as SiLU only.
    pub fn require_silu(&self, key: &str) -> Result<()> {
        match self.activation(key, Activation::Silu)? {
            Activation::Silu => Ok(()),
            other => {
                Err(Error::setting(key, format!("is {}: recurrent layers are known with silu only", other.name())))
            }
        }
    }

    /// The activation that the configuration's field `key` names; GGUF files carry none, so `default` is the family's.
    pub fn activation(&self, key: &str, default: Activation) -> Result<Activation> {
        let Some(value) = self.settings.field(key) else { return Ok(default) };
        match value.as_str() {
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu") => Ok(Activation::GeluErf),
            Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_tanh") => Ok(Activation::GeluTanh),
            Some("relu") => Ok(Activation::Relu),
            Some("relu2") => Ok(Activation::ReluSquared),
            _ => {
                let known = "silu, gelu, gelu_pytorch_tanh, relu, relu2";
                Err(Error::setting(key, format!("{value} is not known ({known} are)")))
            }
        }
    }

    /// The dense feed-forward part of layer `layer`; gate and up in one tensor, gate first, where the file has them so.
    pub fn dense(&mut self, layer: usize, activation: Activation) -> Result<FeedForward> {
        let Sizes { d_model, d_ff, .. } = self.sizes;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let (gate, up) = if self.tensors.has(&at("ffn_gate.weight")) {
            (self.linear(&at("ffn_gate"), d_ff, d_model)?, self.linear(&at("ffn_up"), d_ff, d_model)?)
        } else {
            let fused = at("ffn_up");
            (
                self.linear_rows(&fused, 2 * d_ff, d_model, 0..d_ff)?,
                self.linear_rows(&fused, 2 * d_ff, d_model, d_ff..2 * d_ff)?,
            )
        };
        let down = self.linear(&at("ffn_down"), d_model, d_ff)?;
        Ok(FeedForward::Dense(Dense { gate: Some(gate), gate_scale: 1.0, up, down, activation }))
    }

    /// A layer in the usual form: a norm before each part, none after.
    pub fn pre_norm_layer(&mut self, layer: usize, mixer: Mixer, feed_forward: FeedForward) -> Result<Layer> {
        Ok(Layer {
            shared: None,
            mixer: Some(block(Some(self.norm(layer, "attn_norm")?), mixer, None)),
            feed_forward: Some(block(Some(self.norm(layer, "ffn_norm")?), feed_forward, None)),
        })
    }

    /// A layer with a norm after each part too (Gemma).
    pub fn sandwich_layer(&mut self, layer: usize, mixer: Mixer, feed_forward: FeedForward) -> Result<Layer> {
        let post_mixer = Some(self.norm(layer, "post_attention_norm")?);
        let post_feed_forward = Some(self.norm(layer, "post_ffw_norm")?);
        Ok(Layer {
            shared: None,
            mixer: Some(block(Some(self.norm(layer, "attn_norm")?), mixer, post_mixer)),
            feed_forward: Some(block(Some(self.norm(layer, "ffn_norm")?), feed_forward, post_feed_forward)),
        })
    }

    /// The spec around `layers`: embedding, final norm, head. Either of embedding and head stands for the other where the file
    /// has but one; a file that has both means both, whatever its settings say of ties.
    pub fn finish(mut self, layers: Vec<Layer>) -> Result<ModelSpec> {
        let d_model = self.sizes.d_model;
        let tied = self.settings.switch("", "tie_word_embeddings|tie_embeddings", self.defaults.tied)?;
        let table = match tied && !self.tensors.has(EMBEDDING) && self.tensors.has(HEAD) {
            true => HEAD,
            false => EMBEDDING,
        };
        let vocab_size = self.vocab_size(table)?;
        let embedding = self.tensors.weight(table, &[vocab_size, d_model])?;
        let final_norm = self.norm_of("output_norm.weight", d_model)?;
        let head = match table != HEAD && self.tensors.has(HEAD) {
            true => self.linear("output", vocab_size, d_model)?,
            false => Linear::new(embedding),
        };
        Ok(ModelSpec {
            architecture: self.settings.architecture().to_owned(),
            d_model,
            vocab_size,
            context: self.sizes.context,
            embedding,
            embedding_scale: 1.0,
            layers,
            final_norm,
            head,
            logit_scale: 1.0,
            logit_softcap: None,
            ropes: self.ropes,
            weights: self.tensors.finish(),
        })
    }

    /// Rows of the embedding, which may be more than the vocabulary that the settings tell.
    fn vocab_size(&self, table: &str) -> Result<usize> {
        let d_model = self.sizes.d_model;
        let info = self.tensors.require(table)?;
        let told = self.settings.count("vocab_size", "vocab_size")?;
        match info.shape[..] {
            [rows, width] | [width, rows] if width == d_model => match told {
                Some(told) if told > rows => Err(Error::setting(
                    self.settings.name("vocab_size", "vocab_size"),
                    format!("{told}, but `{}` has {rows} rows", info.name),
                )),
                _ => Ok(rows),
            },
            _ => Err(Error::Shape {
                tensor: info.name.clone(),
                found: info.shape.clone(),
                wanted: vec![told.unwrap_or(0), d_model],
            }),
        }
    }
}

/// A residual block without a scale.
pub(crate) fn block<T>(pre_norm: Option<Norm>, inner: T, post_norm: Option<Norm>) -> Block<T> {
    Block { pre_norm, inner, post_norm, residual_scale: 1.0 }
}

impl Sizes {
    fn read(s: &Settings<'_>) -> Result<Self> {
        let n_heads = s.size("attention.head_count", "num_attention_heads")?;
        let n_kv_heads = s.count("attention.head_count_kv", "num_key_value_heads")?.unwrap_or(n_heads);
        Self::of_heads(s, n_heads, n_kv_heads, s.count("feed_forward_length", "intermediate_size")?.unwrap_or(0))
    }

    fn of_hybrid(s: &Settings<'_>) -> Result<Self> {
        let n_heads = s.count("attention.head_count", "num_attention_heads")?.unwrap_or(0);
        let n_kv_heads = match s.largest("attention.head_count_kv")? {
            Some(n) => n,
            None => s.count("attention.head_count_kv", "num_key_value_heads")?.unwrap_or(n_heads),
        };
        let d_ff = match s.largest("feed_forward_length")? {
            Some(n) => n,
            None => s.count("feed_forward_length", "intermediate_size")?.unwrap_or(0),
        };
        // Files without attention say so by either count.
        let n_heads = if s.is_gguf() && n_kv_heads == 0 { 0 } else { n_heads };
        Self::of_heads(s, n_heads, n_kv_heads, d_ff)
    }

    fn of_latent(s: &Settings<'_>) -> Result<Self> {
        let n_heads = s.size("attention.head_count", "num_attention_heads")?;
        let head_dim = s.size("rope.dimension_count", "qk_rope_head_dim")?;
        let d_ff = s.count("feed_forward_length", "intermediate_size")?.unwrap_or(0);
        Ok(Self { n_heads, n_kv_heads: 1, head_dim, ..Self::of_heads(s, 0, 0, d_ff)? })
    }

    /// `n_heads` may be 0.
    fn of_heads(s: &Settings<'_>, n_heads: usize, n_kv_heads: usize, d_ff: usize) -> Result<Self> {
        let d_model = s.size("embedding_length", "hidden_size|d_model")?;
        let (gguf, hf) = EPS;
        let eps = s.number(gguf, hf)?.unwrap_or(1e-5);
        if !(eps >= 0.0 && eps.is_finite()) {
            return Err(Error::setting(s.name(gguf, hf), format!("is {eps}")));
        }
        let n_layers = match s.count("block_count", N_LAYERS)?.filter(|&n| n > 0) {
            Some(n) => n,
            // Nemotron-H in transformers 5 has one entry a layer, and no count.
            None => match s.field("layers_block_type|hybrid_override_pattern") {
                Some(Value::Array(list)) if !list.is_empty() => list.len(),
                Some(Value::String(letters)) if !letters.is_empty() => letters.chars().count(),
                _ => s.size("block_count", N_LAYERS)?,
            },
        };
        let context = s.count("context_length", "max_position_embeddings")?;
        let own = Self {
            d_model,
            n_layers,
            n_heads: 0,
            n_kv_heads: 0,
            head_dim: 0,
            d_ff,
            eps: eps as f32,
            theta: USUAL.theta,
            rotary_part: USUAL.rotary_part,
            context,
        };
        if n_heads == 0 {
            return Ok(own);
        }
        let head_dim = s.count("attention.key_length", "head_dim|attention_head_dim")?;
        let own = own.with_heads(s, "num_attention_heads", n_heads, n_kv_heads, head_dim)?;
        if s.count("attention.value_length", "v_head_dim")?.is_some_and(|v| v != own.head_dim) {
            let key = s.name("attention.value_length", "v_head_dim");
            return Err(Error::setting(key, format!("differs from the keys' {}", own.head_dim)));
        }
        Ok(own)
    }

    /// The same with heads, of which `field` is the number. Without a `head_dim` they share the width.
    pub fn with_heads(
        &self,
        s: &Settings<'_>,
        field: &str,
        n_heads: usize,
        n_kv_heads: usize,
        head_dim: Option<usize>,
    ) -> Result<Self> {
        let d_model = self.d_model;
        if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
            let what = format!("{n_heads} query heads do not divide by {n_kv_heads} key heads");
            return Err(Error::setting(s.name("attention.head_count_kv", "num_key_value_heads"), what));
        }
        let head_dim = match head_dim {
            Some(0) => return Err(Error::setting(s.name("attention.key_length", "head_dim"), "is 0")),
            Some(n) => n,
            None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
            None => {
                let what = format!("width {d_model} does not divide by {n_heads} heads");
                return Err(Error::setting(s.name("attention.head_count", field), what));
            }
        };
        if n_heads.checked_mul(head_dim).is_none_or(|width| width >= 1 << 28) {
            let what = format!("{n_heads} heads of {head_dim} are out of all proportion");
            return Err(Error::setting(s.name("attention.key_length", "head_dim"), what));
        }
        Ok(Self { n_heads, n_kv_heads, head_dim, ..*self })
    }
}

/// Whether a configuration's list has a true or non-zero entry at `i`.
pub(crate) fn truthy(list: &Value, i: usize) -> Option<bool> {
    let entry = list.get(i)?;
    entry.as_bool().or_else(|| entry.as_u64().map(|n| n != 0))
}
