//! What the state-space families share: the mixers of Mamba-1 and Mamba-2 and their sizes.

use selkie_formats::json_f64;

use super::{
    decoder::{AttentionOptions, Reader, block},
    tensors::Names,
};
use crate::{
    Error, Result,
    spec::{Conv, InputRule, Layer, Mamba1, Mamba2, Mixer, Norm, SsdShape},
    weights::{Transform, WeightId},
};

/// Safetensors of families whose layers are a norm and a mixer.
pub(super) const MIXER: Names = &[
    ("token_embd", "embeddings"),
    ("token_embd", "embedding"),
    ("output_norm", "norm_f"),
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_x", "mixer.x_proj"),
    ("ssm_dt.weight", "mixer.dt_proj.weight"),
    ("ssm_dt.bias", "mixer.dt_bias"),
    ("ssm_dt.bias", "mixer.dt_proj.bias"),
    ("ssm_a", "mixer.A_log"),
    ("ssm_d", "mixer.D"),
    ("ssm_norm", "mixer.norm"),
    ("ssm_out", "mixer.out_proj"),
];

/// Safetensors of families whose layers may have attention instead.
pub(super) const MAMBA: Names = &[
    ("output_norm", "final_layernorm"),
    ("output_norm", "norm"),
    ("ffn_norm", "pre_ff_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "feed_forward.gate_proj"),
    ("ffn_up", "feed_forward.up_proj"),
    ("ffn_down", "feed_forward.down_proj"),
    ("ssm_in", "mamba.in_proj"),
    ("ssm_conv1d", "mamba.conv1d"),
    ("ssm_x", "mamba.x_proj"),
    ("ssm_dt.weight", "mamba.dt_proj.weight"),
    ("ssm_dt.bias", "mamba.dt_bias"),
    ("ssm_dt.bias", "mamba.dt_proj.bias"),
    ("ssm_dt_norm", "mamba.dt_layernorm"),
    ("ssm_b_norm", "mamba.b_layernorm"),
    ("ssm_c_norm", "mamba.c_layernorm"),
    ("ssm_a", "mamba.A_log"),
    ("ssm_d", "mamba.D"),
    ("ssm_norm", "mamba.norm"),
    ("ssm_out", "mamba.out_proj"),
];

/// What a family's configuration calls the sizes of its recurrent layers; GGUF calls them the same in all.
#[derive(Clone, Copy, Default)]
pub(super) struct Keys {
    pub d_inner: &'static str,
    pub expand: &'static str,
    pub dt_rank: &'static str,
    pub d_state: Size,
    pub taps: Size,
    pub n_heads: Size,
    pub head_dim: Size,
    pub n_groups: Size,
    /// What the convolution's activation goes by, and Mamba-1's gate; nothing where it is always SiLU.
    pub activation: &'static str,
}

/// A field and what it is where it is missing; 0 where it must not be.
pub(super) type Size = (&'static str, usize);

/// The keys of Bamba and what is made like it.
pub(super) const BAMBA_KEYS: Keys = Keys {
    d_inner: "",
    expand: "mamba_expand",
    dt_rank: "",
    d_state: ("mamba_d_state", 256),
    taps: ("mamba_d_conv", 4),
    n_heads: ("mamba_n_heads", 128),
    head_dim: ("mamba_d_head", 0),
    n_groups: ("mamba_n_groups", 1),
    activation: "hidden_act",
};

/// The sizes of a [`Mamba1`].
pub(super) struct Mamba1Sizes {
    pub d_inner: usize,
    pub d_state: usize,
    pub dt_rank: usize,
    pub taps: usize,
    pub activation: &'static str,
}

/// The sizes of a [`Mamba2`], and what happens to its convolution's weights.
pub(super) struct Mamba2Sizes {
    pub shape: SsdShape,
    pub taps: usize,
    pub activation: &'static str,
    pub conv: Transform,
}

/// Norms of Mamba-1's time steps, B and C.
pub(super) enum InnerNorms {
    None,
    /// Nothing is multiplied.
    Plain {
        eps: f32,
    },
    Weighted,
}

impl Reader<'_> {
    /// Width of a recurrent layer's inputs: given, or so many times the stream's.
    pub fn d_inner(&self, keys: &Keys) -> Result<usize> {
        if let Some(width) = self.settings.count("ssm.inner_size", keys.d_inner)? {
            return self.settings.positive("ssm.inner_size", keys.d_inner, width);
        }
        if self.settings.is_gguf() {
            return self.settings.size("ssm.inner_size", keys.d_inner);
        }
        let expand = self.settings.number("", keys.expand)?.unwrap_or(2.0);
        let width = expand * self.sizes.d_model as f64;
        if !(width >= 1.0 && width < (1u32 << 28) as f64) {
            return Err(Error::setting(self.settings.name("", keys.expand), format!("is {expand}")));
        }
        Ok(width as usize)
    }

    /// The sizes of Mamba-1's layers.
    pub fn mamba1_sizes(&self, keys: &Keys) -> Result<Mamba1Sizes> {
        let s = &self.settings;
        let dt_rank = match s.count_or_auto("ssm.time_step_rank", keys.dt_rank)? {
            Some(rank) => s.positive("ssm.time_step_rank", keys.dt_rank, rank)?,
            None => self.sizes.d_model.div_ceil(16),
        };
        Ok(Mamba1Sizes {
            d_inner: self.d_inner(keys)?,
            d_state: s.size_or("ssm.state_size", keys.d_state)?,
            dt_rank,
            taps: s.size_or("ssm.conv_kernel", keys.taps)?,
            activation: keys.activation,
        })
    }

    /// The sizes of Mamba-2's layers. GGUF's `time_step_rank` is the number of heads there.
    pub fn mamba2_sizes(&self, keys: &Keys) -> Result<Mamba2Sizes> {
        let s = &self.settings;
        let size = |found: Option<usize>, gguf: &str, (hf, default): Size| -> Result<Option<usize>> {
            let default = Some(default).filter(|&n| n > 0 && !s.is_gguf());
            found.or(default).map(|n| s.positive(gguf, hf, n)).transpose()
        };
        let heads = size(s.count("ssm.time_step_rank", keys.n_heads.0)?, "ssm.time_step_rank", keys.n_heads)?;
        let head_dim = if s.is_gguf() { None } else { s.count_or_auto("", keys.head_dim.0)? };
        let head_dim = size(head_dim, "", keys.head_dim)?;
        let divide = |by: usize, key: String| {
            let d_inner = self.d_inner(keys)?;
            match d_inner.checked_rem(by) {
                Some(0) => Ok(d_inner / by),
                _ => Err(Error::setting(key, format!("a width of {d_inner} does not divide by {by}"))),
            }
        };
        let (n_heads, head_dim) = match (heads, head_dim) {
            (Some(n_heads), Some(head_dim)) => (n_heads, head_dim),
            (Some(n_heads), None) => (n_heads, divide(n_heads, s.name("ssm.time_step_rank", keys.n_heads.0))?),
            (None, Some(head_dim)) => (divide(head_dim, s.name("", keys.head_dim.0))?, head_dim),
            (None, None) => return Err(Error::setting(s.name("ssm.time_step_rank", keys.n_heads.0), "is missing")),
        };
        let n_groups = s.size_or("ssm.group_count", keys.n_groups)?;
        if !n_heads.is_multiple_of(n_groups) {
            let what = format!("{n_heads} heads do not divide by {n_groups} groups");
            return Err(Error::setting(s.name("ssm.group_count", keys.n_groups.0), what));
        }
        let d_state = s.size_or("ssm.state_size", keys.d_state)?;
        s.product("ssm.inner_size", keys.head_dim.0, [n_heads, head_dim])?;
        s.product("ssm.state_size", keys.d_state.0, [n_groups, d_state])?;
        let (dt_min, dt_max) = self.time_step_limit()?;
        let shape = SsdShape { n_heads, head_dim, n_groups, d_state, dt_min, dt_max, scale_input: true };
        let taps = s.size_or("ssm.conv_kernel", keys.taps)?;
        Ok(Mamba2Sizes { shape, taps, activation: keys.activation, conv: Transform::None })
    }

    /// Between what time steps are held; GGUF files carry no limits.
    fn time_step_limit(&self) -> Result<(f32, f32)> {
        let key = "time_step_limit|mamba_dt_limit|ssm_cfg.dt_limit";
        let Some(found) = self.settings.field(key) else { return Ok((0.0, f32::INFINITY)) };
        let ends: Option<Vec<f64>> = found.as_array().and_then(|list| list.iter().map(json_f64).collect());
        match ends.as_deref() {
            Some(&[least, largest]) if least >= 0.0 && least <= largest && least.is_finite() => {
                Ok((least as f32, largest as f32))
            }
            _ => Err(Error::setting(self.settings.name("", key), format!("{found} is not two limits in order"))),
        }
    }

    /// Below what time steps are not let, in families without another limit.
    pub fn least_time_step(&self, hf: &str) -> Result<f32> {
        let least = self.settings.scale("", hf, 1e-3)?;
        if least < 0.0 { Err(Error::setting(self.settings.name("", hf), format!("is {least}"))) } else { Ok(least) }
    }

    /// A, which safetensors store as the logarithm of its negative.
    pub fn negative_a(&mut self, short: &str, shape: &[usize]) -> Result<WeightId> {
        let transform = if self.settings.is_gguf() { Transform::None } else { Transform::NegExp };
        self.tensors.transformed(short, shape, transform)
    }

    /// A depthwise convolution, with its bias where the file has one.
    pub fn conv(&mut self, short: &str, shape: [usize; 2], silu: bool, transform: Transform) -> Result<Conv> {
        let weight = self.tensors.transformed(&format!("{short}.weight"), &shape, transform)?;
        let bias = self.tensors.optional(&format!("{short}.bias"), &shape[..1])?;
        Ok(Conv { weight, bias, silu })
    }

    /// The Mamba-1 of layer `layer`.
    pub fn mamba1(&mut self, layer: usize, sizes: &Mamba1Sizes, norms: &InnerNorms) -> Result<Mamba1> {
        let d_model = self.sizes.d_model;
        let &Mamba1Sizes { d_inner, d_state, dt_rank, taps, activation } = sizes;
        self.require_silu(activation)?;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let (input, inner) = (at("ssm_in"), at("ssm_x"));
        let inner_rows = dt_rank + 2 * d_state;
        let norms = match norms {
            InnerNorms::None => None,
            &InnerNorms::Plain { eps } => {
                Some([dt_rank, d_state, d_state].map(|n| Norm { weight: None, group: n, eps }))
            }
            InnerNorms::Weighted => Some([
                self.norm_of(&at("ssm_dt_norm.weight"), dt_rank)?,
                self.norm_of(&at("ssm_b_norm.weight"), d_state)?,
                self.norm_of(&at("ssm_c_norm.weight"), d_state)?,
            ]),
        };
        Ok(Mamba1 {
            x: self.linear_rows(&input, 2 * d_inner, d_model, 0..d_inner)?,
            z: self.linear_rows(&input, 2 * d_inner, d_model, d_inner..2 * d_inner)?,
            conv: self.conv(&at("ssm_conv1d"), [d_inner, taps], true, Transform::None)?,
            dt: self.linear_rows(&inner, inner_rows, d_inner, 0..dt_rank)?,
            b: self.linear_rows(&inner, inner_rows, d_inner, dt_rank..dt_rank + d_state)?,
            c: self.linear_rows(&inner, inner_rows, d_inner, dt_rank + d_state..inner_rows)?,
            norms,
            dt_up: self.linear(&at("ssm_dt"), d_inner, dt_rank)?,
            a: self.negative_a(&at("ssm_a"), &[d_inner, d_state])?,
            d: self.tensors.weight(&at("ssm_d"), &[d_inner])?,
            input: InputRule::Euler,
            out: self.linear(&at("ssm_out"), d_model, d_inner)?,
        })
    }

    /// The Mamba-2 of layer `layer`, normed in groups after the gate where the file has a norm.
    pub fn mamba2(&mut self, layer: usize, sizes: &Mamba2Sizes) -> Result<Mamba2> {
        let d_model = self.sizes.d_model;
        let (shape, taps) = (sizes.shape, sizes.taps);
        self.require_silu(sizes.activation)?;
        let (d_inner, width, n_heads) = (shape.d_inner(), shape.width(), shape.n_heads);
        let at = |name: &str| format!("blk.{layer}.{name}");
        let input = at("ssm_in");
        let total = d_inner + width + n_heads;
        let norm = if self.tensors.has(&at("ssm_norm.weight")) {
            let weight = self.tensors.list(&at("ssm_norm.weight"), d_inner, shape.n_groups)?;
            Some(Norm { weight: Some(weight), group: d_inner / shape.n_groups, eps: self.sizes.eps })
        } else {
            None
        };
        Ok(Mamba2 {
            z: Some(self.linear_rows(&input, total, d_model, 0..d_inner)?),
            z_scale: 1.0,
            xbc: self.linear_rows(&input, total, d_model, d_inner..d_inner + width)?,
            conv: self.conv(&at("ssm_conv1d"), [width, taps], true, sizes.conv.clone())?,
            dt: self.linear_rows(&input, total, d_model, d_inner + width..total)?,
            dt_scale: 1.0,
            a: self.negative_a(&at("ssm_a"), &[n_heads])?,
            d: self.tensors.weight(&at("ssm_d"), &[n_heads])?,
            dt_bias: self.tensors.weight(&at("ssm_dt.bias"), &[n_heads])?,
            shape,
            norm,
            norm_before_gate: false,
            out: self.linear(&at("ssm_out"), d_model, d_inner)?,
        })
    }

    /// Key heads of each layer, none where it does not attend. GGUF files list them; for configurations `attends` tells.
    pub fn kv_heads(&self, attends: impl FnOnce(&Self) -> Result<Vec<bool>>) -> Result<Vec<usize>> {
        let n_layers = self.sizes.n_layers;
        if self.settings.is_gguf() {
            let listed = self.settings.counts("attention.head_count_kv", "", n_layers)?;
            return Ok(listed.unwrap_or_else(|| vec![0; n_layers]));
        }
        let attends = attends(self)?;
        if let (Some(layer), 0) = (attends.iter().position(|&attends| attends), self.sizes.n_kv_heads) {
            let key = self.settings.name("attention.head_count", "num_attention_heads");
            return Err(Error::setting(key, format!("is 0 or missing, but layer {layer} attends")));
        }
        Ok(attends.into_iter().map(|attends| if attends { self.sizes.n_kv_heads } else { 0 }).collect())
    }

    /// The attention of layer `layer`, which may have another number of key heads than its neighbours.
    pub fn attention_over(&mut self, layer: usize, n_kv_heads: usize, options: &AttentionOptions) -> Result<Mixer> {
        let n_heads = self.sizes.n_heads;
        if !n_heads.is_multiple_of(n_kv_heads) {
            let what = format!("layer {layer}: {n_heads} query heads do not divide by {n_kv_heads} key heads");
            return Err(Error::setting(self.settings.name("attention.head_count_kv", "num_key_value_heads"), what));
        }
        self.sizes.n_kv_heads = n_kv_heads;
        self.attention(layer, options)
    }

    /// Rows of a matrix over the stream.
    pub fn rows_of(&self, short: &str) -> Result<usize> {
        Ok(self.tensors.require(short)?.shape.iter().product::<usize>() / self.sizes.d_model)
    }

    /// A layer of a norm and a mixer.
    pub fn mixer_layer(&mut self, layer: usize, mixer: Mixer) -> Result<Layer> {
        let mixer = Some(block(Some(self.norm(layer, "attn_norm")?), mixer, None));
        Ok(Layer { shared: None, mixer, feed_forward: None })
    }
}
