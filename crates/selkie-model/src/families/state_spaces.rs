//! What the `mamba_ssm` package writes: Mamba-1, -2 or -3 layers, some of them attention with a convolution over queries,
//! keys and values, perhaps each with a gated MLP. Code: <https://github.com/state-spaces/mamba>.

use std::ops::Range;

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL, block},
    mamba3::{Mamba3Sizes, checked, decay_activation},
    recurrent::{InnerNorms, Keys, MIXER, Mamba1Sizes, Mamba2Sizes},
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    rope::{Pairing, RopeScaling, RopeSpec},
    spec::{Activation, Conv, Dense, FeedForward, Mamba3Shape, Mixer},
};

const NAMES: Names = &[
    ("ffn_norm", "norm2"),
    ("ffn_up", "mlp.fc1"),
    ("ffn_down", "mlp.fc2"),
    ("attn_qkv", "mixer.in_proj"),
    ("attn_output", "mixer.out_proj"),
    ("ssm_b_norm", "mixer.B_norm"),
    ("ssm_c_norm", "mixer.C_norm"),
    ("ssm_b_bias", "mixer.B_bias"),
    ("ssm_c_bias", "mixer.C_bias"),
    ("ssm_mimo_x", "mixer.mimo_x"),
    ("ssm_mimo_z", "mixer.mimo_z"),
    ("ssm_mimo_o", "mixer.mimo_o"),
];

const KEYS: Keys = Keys {
    d_inner: "",
    expand: "ssm_cfg.expand",
    dt_rank: "ssm_cfg.dt_rank",
    d_state: ("ssm_cfg.d_state", 128),
    taps: ("ssm_cfg.d_conv", 4),
    n_heads: ("", 0),
    head_dim: ("ssm_cfg.headdim", 64),
    n_groups: ("ssm_cfg.ngroups", 1),
    activation: "",
};

/// The layers that do not attend, all of one kind.
enum Recurrent {
    Mamba1(Mamba1Sizes),
    Mamba2(Mamba2Sizes),
    Mamba3(Mamba3Sizes),
}

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, NAMES, MIXER)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    if !r.settings.switch("", "rms_norm", true)? {
        return Err(Error::setting("rms_norm", "is false, and only root-mean-square norms are known"));
    }
    let recurrent = r.recurrent()?;
    let attending = r.settings.layers("attn_layer_idx", r.sizes.n_layers)?.unwrap_or_default();
    let attention = if attending.is_empty() { None } else { Some(r.attention_options()?) };
    let norm_before_gate = r.settings.flag("ssm_cfg.norm_before_gate")?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = match (&attention, &recurrent) {
            (Some(options), _) if attending.contains(&layer) => r.convolved_attention(layer, options)?,
            (_, Recurrent::Mamba1(sizes)) => Mixer::Mamba1(Box::new(r.mamba1(layer, sizes, &InnerNorms::None)?)),
            (_, Recurrent::Mamba2(sizes)) => {
                let mut mixer = r.mamba2(layer, sizes)?;
                mixer.norm_before_gate = norm_before_gate;
                Mixer::Mamba2(Box::new(mixer))
            }
            (_, Recurrent::Mamba3(sizes)) => Mixer::Mamba3(Box::new(r.mamba3(layer, sizes)?)),
        };
        let mut built = r.mixer_layer(layer, mixer)?;
        if r.tensors.has(&format!("blk.{layer}.ffn_up.weight")) {
            let feed_forward = r.gated_mlp(layer)?;
            built.feed_forward = Some(block(Some(r.norm(layer, "ffn_norm")?), feed_forward, None));
        }
        layers.push(built);
    }
    r.finish(layers)
}

impl Reader<'_> {
    fn recurrent(&self) -> Result<Recurrent> {
        match self.settings.word("", "ssm_cfg.layer")?.unwrap_or("Mamba1") {
            "Mamba1" => {
                let keys = Keys { d_state: (KEYS.d_state.0, 16), ..KEYS };
                Ok(Recurrent::Mamba1(self.mamba1_sizes(&keys)?))
            }
            "Mamba2" => {
                if self.settings.flag("ssm_cfg.D_has_hdim")? {
                    let what = "is true: a D of its own for each value of a head is not supported";
                    return Err(Error::setting("ssm_cfg.D_has_hdim", what));
                }
                let width = self.d_inner(&KEYS)?;
                if let Some(part) = self.settings.count("", "ssm_cfg.d_ssm")?.filter(|&n| n != width) {
                    let what = format!("is {part} and not the whole width of {width}, which is not supported");
                    return Err(Error::setting("ssm_cfg.d_ssm", what));
                }
                Ok(Recurrent::Mamba2(self.mamba2_sizes(&KEYS)?))
            }
            "Mamba3" => Ok(Recurrent::Mamba3(self.mamba3_config()?)),
            other => {
                Err(Error::setting("ssm_cfg.layer", format!("`{other}` is not known (Mamba1, Mamba2, Mamba3 are)")))
            }
        }
    }

    fn mamba3_config(&self) -> Result<Mamba3Sizes> {
        let s = &self.settings;
        let (d_inner, head_dim) = (self.d_inner(&KEYS)?, s.size_or("", KEYS.head_dim)?);
        if !d_inner.is_multiple_of(head_dim) {
            let what = format!("a width of {d_inner} does not divide by {head_dim}");
            return Err(Error::setting(KEYS.head_dim.0, what));
        }
        let d_state = s.size_or("", KEYS.d_state)?;
        let part = s.number("", "ssm_cfg.rope_fraction")?.unwrap_or(0.5);
        if !(part > 0.0 && part <= 1.0) {
            return Err(Error::setting("ssm_cfg.rope_fraction", format!("is {part}")));
        }
        let mimo = s.flag("ssm_cfg.is_mimo")?;
        let shape = Mamba3Shape {
            n_heads: d_inner / head_dim,
            head_dim,
            n_groups: s.size_or("", KEYS.n_groups)?,
            d_state,
            rank: if mimo { s.size_or("", ("ssm_cfg.mimo_rank", 4))? } else { 1 },
            n_angles: (d_state as f64 * part) as usize / 2,
            // The kernels of one rank turn neighbours, those of several turn halves.
            pairing: if mimo { Pairing::Halves } else { Pairing::Interleaved },
            a_activation: decay_activation(s, "", "ssm_cfg.a_activation|a_activation")?,
            a_floor: s.scale("", "ssm_cfg.A_floor", 1e-4)?,
        };
        checked(s, Mamba3Sizes { shape, mimo, normed: s.flag("ssm_cfg.is_outproj_norm")? })
    }

    /// Reads the sizes of attention.
    fn attention_options(&mut self) -> Result<AttentionOptions> {
        let s = &self.settings;
        if let Some(width) = s.count("", "attn_cfg.mlp_dim")?.filter(|&n| n > 0) {
            return Err(Error::setting(
                "attn_cfg.mlp_dim",
                format!("is {width}: an MLP beside attention is not supported"),
            ));
        }
        if !s.switch("", "attn_cfg.causal", true)? {
            return Err(Error::setting("attn_cfg.causal", "is false, and only causal attention is known"));
        }
        let n_heads = s.size("", "attn_cfg.num_heads")?;
        let n_kv_heads = s.count("", "attn_cfg.num_heads_kv")?.unwrap_or(n_heads);
        let head_dim = s.count("", "attn_cfg.head_dim")?;
        let sizes = self.sizes.with_heads(s, "attn_cfg.num_heads", n_heads, n_kv_heads, head_dim)?;
        let turned = s.count("", "attn_cfg.rotary_emb_dim")?.unwrap_or(0);
        if !turned.is_multiple_of(2) || turned > sizes.head_dim {
            let what = format!("{turned} channels of a head of {} cannot turn in pairs", sizes.head_dim);
            return Err(Error::setting("attn_cfg.rotary_emb_dim", what));
        }
        let theta = s.number("", "attn_cfg.rotary_emb_base")?.unwrap_or(10_000.0);
        if !(theta > 0.0 && theta.is_finite()) {
            return Err(Error::setting("attn_cfg.rotary_emb_base", format!("is {theta}")));
        }
        let neighbours = s.flag("attn_cfg.rotary_emb_interleaved")?;
        let scale = s.number("", "attn_cfg.softmax_scale")?;
        self.sizes = sizes;
        if turned > 0 {
            self.ropes.push(RopeSpec {
                n_dims: turned,
                theta,
                pairing: if neighbours { Pairing::Interleaved } else { Pairing::Halves },
                scaling: RopeScaling::None,
                freq_factors: None,
            });
        }
        let default = self.options_without_rope();
        let scale = scale.map_or(default.scale, |scale| scale as f32);
        Ok(AttentionOptions { rope: (turned > 0).then_some(0), scale, ..default })
    }

    /// Attention, with a convolution over queries, keys and values where the file has one.
    fn convolved_attention(&mut self, layer: usize, options: &AttentionOptions) -> Result<Mixer> {
        let mut mixer = self.attention(layer, options)?;
        let taps = self.settings.count("", "attn_cfg.d_conv")?.unwrap_or(0);
        if let (Mixer::Attention(attention), 1..) = (&mut mixer, taps) {
            let (q, kv) = (attention.n_heads * attention.head_dim, attention.n_kv_heads * attention.head_dim);
            let total = q + 2 * kv;
            let mut part = |rows: Range<usize>| -> Result<Conv> {
                let at = format!("blk.{layer}.ssm_conv1d");
                let weight = self.tensors.rows(&format!("{at}.weight"), &[total, taps], rows.clone())?;
                let bias = format!("{at}.bias");
                let bias = if self.tensors.has(&bias) { Some(self.tensors.rows(&bias, &[total], rows)?) } else { None };
                Ok(Conv { weight, bias, silu: false })
            };
            attention.conv = Some([part(0..q)?, part(q..q + kv)?, part(q + kv..total)?]);
        }
        Ok(mixer)
    }

    /// A gated MLP of which the gate's rows come last. Its width is rounded up, so it is read off the tensor.
    fn gated_mlp(&mut self, layer: usize) -> Result<FeedForward> {
        let (fused, down) = (format!("blk.{layer}.ffn_up"), format!("blk.{layer}.ffn_down"));
        let d_model = self.sizes.d_model;
        let rows = self.tensors.require(&format!("{fused}.weight"))?.shape.first().copied().unwrap_or(0);
        let d_ff = rows / 2;
        Ok(FeedForward::Dense(Dense {
            gate: Some(self.linear_rows(&fused, rows, d_model, d_ff..rows)?),
            gate_scale: 1.0,
            up: self.linear_rows(&fused, rows, d_model, 0..d_ff)?,
            down: self.linear(&down, d_model, d_ff)?,
            activation: Activation::Silu,
        }))
    }
}
