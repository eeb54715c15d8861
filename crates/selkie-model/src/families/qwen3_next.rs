//! Qwen3-Next: gated delta nets, every fourth layer attention whose result is gated, and mixtures beside a gated block in all.
//! Post: <https://qwen.ai/blog?id=qwen3-next>; delta nets: <https://arxiv.org/abs/2412.06464>.

use std::ops::Range;

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, Defaults, Reader, Sizes, USUAL, block},
    mixture::MixtureOptions,
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Attention, DeltaNet, DeltaShape, Layer, Linear, Mixer, Norm, Routing},
    weights::Transform,
};

const NAMES: Names = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ssm_in", "linear_attn.in_proj_qkvz"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
];

/// What configurations call a layer: whether it attends.
const KINDS: &[(&str, bool)] = &[("linear_attention", false), ("full_attention", true)];

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let defaults = Defaults { rotary_part: 0.25, ..USUAL };
    let mut r = Reader::hybrid(settings, checkpoint, NAMES, &[])?.with_defaults(defaults).with_offset_norms();
    if r.settings.leaves_out("num_key_value_heads") && r.sizes.n_heads > 0 {
        let Sizes { n_heads, head_dim, .. } = r.sizes;
        r.sizes = r.sizes.with_heads(&r.settings, "num_attention_heads", n_heads, 2, Some(head_dim))?;
    }
    // It is that of the convolutions too.
    r.require_silu("hidden_act")?;
    let (shape, taps) = r.delta_shape()?;
    let attends = r.attending()?;
    let options = if attends.contains(&true) {
        let rope = r.rope(Pairing::Halves)?;
        r.options(rope)
    } else {
        r.options_without_rope()
    };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let routing = r.routing(Routing::softmax(true))?;
    let mixture = MixtureOptions { n_used: Some(10), ..MixtureOptions::new(activation, routing) };
    let mut layers = vec![];
    for (layer, attends) in attends.into_iter().enumerate() {
        let mixer = if attends {
            Mixer::Attention(Box::new(r.gated_attention(layer, &options)?))
        } else {
            Mixer::DeltaNet(Box::new(r.delta_net(layer, shape, taps)?))
        };
        let feed_forward = if r.has_mixture(layer) { r.mixture(layer, &mixture)? } else { r.dense(layer, activation)? };
        layers.push(Layer {
            shared: None,
            mixer: Some(block(Some(r.norm(layer, "attn_norm")?), mixer, None)),
            feed_forward: Some(block(Some(r.norm(layer, "post_attention_norm")?), feed_forward, None)),
        });
    }
    r.finish(layers)
}

impl Reader<'_> {
    fn attending(&self) -> Result<Vec<bool>> {
        let (s, n_layers) = (&self.settings, self.sizes.n_layers);
        if let Some(recurrent) = s.switches("attention.recurrent_layers", n_layers)? {
            return Ok(recurrent.into_iter().map(|recurrent| !recurrent).collect());
        }
        if let Some(kinds) = s.kinds("layer_types", n_layers, KINDS)? {
            return Ok(kinds);
        }
        let (gguf, hf) = ("full_attention_interval", "full_attention_interval");
        let interval = s.positive(gguf, hf, s.count(gguf, hf)?.unwrap_or(4))?;
        Ok((0..n_layers).map(|layer| (layer + 1) % interval == 0).collect())
    }

    /// The sizes of the delta nets, and the taps of their convolution.
    fn delta_shape(&self) -> Result<(DeltaShape, usize)> {
        let s = &self.settings;
        let heads = ("ssm.time_step_rank", "linear_num_value_heads");
        let n_k_heads = s.size("ssm.group_count", "linear_num_key_heads")?;
        let n_v_heads = s.size(heads.0, heads.1)?;
        if !n_v_heads.is_multiple_of(n_k_heads) {
            let what = format!("{n_v_heads} value heads do not divide by {n_k_heads} key heads");
            return Err(Error::setting(s.name(heads.0, heads.1), what));
        }
        let k_dim = s.size("ssm.state_size", "linear_key_head_dim")?;
        let v_dim = if s.is_gguf() {
            let width = s.size("ssm.inner_size", "")?;
            if !width.is_multiple_of(n_v_heads) {
                let what = format!("a width of {width} does not divide by {n_v_heads}");
                return Err(Error::setting(s.name("ssm.inner_size", ""), what));
            }
            width / n_v_heads
        } else {
            s.size("", "linear_value_head_dim")?
        };
        s.product("ssm.state_size", "linear_key_head_dim", [n_k_heads, k_dim])?;
        s.product("ssm.inner_size", "linear_value_head_dim", [n_v_heads, v_dim])?;
        let taps = s.size_or("ssm.conv_kernel", ("linear_conv_kernel_dim", 4))?;
        Ok((DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim }, taps))
    }

    /// Attention of which each query head has a gate: its rows follow the head's.
    fn gated_attention(&mut self, layer: usize, options: &AttentionOptions) -> Result<Attention> {
        let Sizes { d_model, n_heads, n_kv_heads, head_dim, .. } = self.sizes;
        if n_heads == 0 {
            let key = self.settings.name("attention.head_count", "num_attention_heads");
            return Err(Error::setting(key, format!("is 0 or missing, but layer {layer} attends")));
        }
        let at = |name: &str| format!("blk.{layer}.{name}");
        let (q_width, kv_width) = (n_heads * head_dim, n_kv_heads * head_dim);
        let halves = |second: usize| -> Vec<Range<usize>> {
            (0..n_heads).map(|head| (2 * head + second) * head_dim..(2 * head + second + 1) * head_dim).collect()
        };
        Ok(Attention {
            q: self.gathered(&at("attn_q"), [2 * q_width, d_model], &halves(0))?,
            k: self.linear(&at("attn_k"), kv_width, d_model)?,
            v: self.linear(&at("attn_v"), kv_width, d_model)?,
            o: self.linear(&at("attn_output"), d_model, q_width)?,
            gate: Some(self.gathered(&at("attn_q"), [2 * q_width, d_model], &halves(1))?),
            conv: None,
            q_norm: Some(self.norm_of(&at("attn_q_norm.weight"), head_dim)?),
            k_norm: Some(self.norm_of(&at("attn_k_norm.weight"), head_dim)?),
            n_heads,
            n_kv_heads,
            head_dim,
            rope: options.rope,
            scale: options.scale,
            softcap: None,
            window: None,
            clip: None,
            sinks: None,
        })
    }

    fn delta_net(&mut self, layer: usize, shape: DeltaShape, taps: usize) -> Result<DeltaNet> {
        let d_model = self.sizes.d_model;
        let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = shape;
        let (width, d_inner) = (shape.width(), shape.d_inner());
        // Value heads of a key head.
        let shared = n_v_heads / n_k_heads;
        let at = |name: &str| format!("blk.{layer}.{name}");
        // Of each key head's rows `each`, those from `start` on.
        let of_heads = |each: usize, start: usize, len: usize| {
            (0..n_k_heads).map(move |head| head * each + start..head * each + start + len)
        };
        let (qkv, z) = if self.tensors.has(&at("ssm_in.weight")) {
            // Head by head: its query, its key, its values, their gates.
            let values = shared * v_dim;
            let each = 2 * k_dim + 2 * values;
            let [q, k] = [0, k_dim].map(|start| of_heads(each, start, k_dim));
            let [v, z] = [2 * k_dim, 2 * k_dim + values].map(|start| of_heads(each, start, values));
            let total = [width + d_inner, d_model];
            let qkv: Vec<_> = q.chain(k).chain(v).collect();
            let z: Vec<_> = z.collect();
            (self.gathered(&at("ssm_in"), total, &qkv)?, self.gathered(&at("ssm_in"), total, &z)?)
        } else {
            (self.linear(&at("attn_qkv"), width, d_model)?, self.linear(&at("attn_gate"), d_inner, d_model)?)
        };
        let [b, a]: [Vec<_>; 2] = [0, shared].map(|start| of_heads(2 * shared, start, shared).collect());
        let weight = self.tensors.weight(&at("ssm_norm.weight"), &[v_dim])?;
        Ok(DeltaNet {
            qkv,
            z,
            b: self.gathered(&at("ssm_ba"), [2 * n_v_heads, d_model], &b)?,
            a: self.gathered(&at("ssm_ba"), [2 * n_v_heads, d_model], &a)?,
            conv: self.conv(&at("ssm_conv1d"), [width, taps], true, Transform::None)?,
            a_weight: self.negative_a(&at("ssm_a"), &[n_v_heads])?,
            dt_bias: self.tensors.weight(&at("ssm_dt.bias"), &[n_v_heads])?,
            shape,
            // Unlike the others, this norm is stored as it is.
            norm: Norm { weight: Some(weight), group: v_dim, eps: self.sizes.eps },
            out: self.linear(&at("ssm_out"), d_model, d_inner)?,
        })
    }

    /// Rows of a product `[total, input]` from several places, with their biases where the file has any.
    fn gathered(&mut self, short: &str, shape: [usize; 2], ranges: &[Range<usize>]) -> Result<Linear> {
        let weight = self.tensors.gather(&format!("{short}.weight"), &shape, ranges)?;
        let bias = format!("{short}.bias");
        let bias = if self.tensors.has(&bias) { Some(self.tensors.gather(&bias, &shape[..1], ranges)?) } else { None };
        Ok(Linear { bias, ..Linear::new(weight) })
    }
}
