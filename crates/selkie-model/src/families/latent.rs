//! Multi-head latent attention, from either format, as the absorbed form wants it.

use std::ops::Range;

use super::decoder::Reader;
use crate::{
    Error, Result,
    rope::{Pairing, RopeScaling, yarn_mscale},
    spec::{LatentAttention, Linear, Mixer, Norm},
    weights::{Transform, WeightId},
};

/// transformers' name for what GGUF calls so, besides the common ones.
pub(super) const NAMES: super::tensors::Names = &[
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];

/// The inner norms' epsilon, which transformers takes from no configuration; GGUF files have one for all norms.
const INNER_EPS: f32 = 1e-6;

/// What the latent attentions of a model have in common.
pub(super) struct LatentOptions {
    n_heads: usize,
    nope_dim: usize,
    rope_dim: usize,
    v_dim: usize,
    rank: usize,
    rope: usize,
    scale: f32,
}

impl LatentOptions {
    /// Width of a head's query.
    fn head_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// The rows of part `part` of each head, where a head has `width` rows.
    fn of_each_head(&self, width: usize, part: Range<usize>) -> Vec<Range<usize>> {
        (0..self.n_heads).map(|h| h * width + part.start..h * width + part.end).collect()
    }
}

impl Reader<'_> {
    /// Sizes, positions and scale of latent attention. Adds the rotary embedding.
    pub(super) fn latent_options(&mut self, pairing: Pairing) -> Result<LatentOptions> {
        let (n_heads, rope_dim, s) = (self.sizes.n_heads, self.sizes.head_dim, &self.settings);
        let key = "attention.key_length_mla|attention.key_length";
        let nope_dim =
            if s.is_gguf() { s.size(key, "")?.saturating_sub(rope_dim) } else { s.size("", "qk_nope_head_dim")? };
        if nope_dim == 0 {
            return Err(Error::setting(
                s.name(key, ""),
                format!("leaves nothing beside {rope_dim} channels that turn"),
            ));
        }
        let value = ("attention.value_length_mla|attention.value_length", "v_head_dim");
        let v_dim = s.size(value.0, value.1)?;
        let rank = s.size("attention.kv_lora_rank", "kv_lora_rank")?;
        s.product(key, "qk_nope_head_dim", [n_heads, nope_dim])?;
        s.product("rope.dimension_count", "qk_rope_head_dim", [n_heads, rope_dim])?;
        s.product(value.0, value.1, [n_heads, v_dim])?;
        s.product("attention.kv_lora_rank", "kv_lora_rank", [n_heads, rank])?;
        let rope = super::rope::read(&self.settings, &mut self.tensors, &self.sizes, pairing)?;
        let mut scale = ((nope_dim + rope_dim) as f32).sqrt().recip();
        if let RopeScaling::Yarn { factor, .. } = rope.scaling {
            let log = self.settings.number("rope.scaling.yarn_log_multiplier", MSCALE_ALL_DIM)?.unwrap_or(0.0);
            // GGUF has the whole factor of the logarithm.
            let mscale = if self.settings.is_gguf() { 10.0 * log } else { log };
            scale *= yarn_mscale(factor, mscale).powi(2) as f32;
        }
        if !(scale > 0.0 && scale.is_finite()) {
            let key = self.settings.name("rope.scaling.yarn_log_multiplier", MSCALE_ALL_DIM);
            return Err(Error::setting(key, format!("scores would be multiplied by {scale}")));
        }
        self.ropes.push(rope);
        Ok(LatentOptions { n_heads, nope_dim, rope_dim, v_dim, rank, rope: self.ropes.len() - 1, scale })
    }

    /// The latent attention of layer `layer`.
    pub(super) fn latent_attention(&mut self, layer: usize, o: &LatentOptions) -> Result<Mixer> {
        let &LatentOptions { n_heads, nope_dim, rope_dim, v_dim, rank, rope, scale } = o;
        let d_model = self.sizes.d_model;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let (q_down, q, q_width) = if self.tensors.has(&at("attn_q_a.weight")) {
            let q_rank = self.settings.size("attention.q_lora_rank", "q_lora_rank")?;
            let down = self.linear(&at("attn_q_a"), q_rank, d_model)?;
            (Some((down, self.inner_norm(&at("attn_q_a_norm.weight"), q_rank)?)), at("attn_q_b.weight"), q_rank)
        } else {
            (None, at("attn_q.weight"), d_model)
        };
        let head_dim = o.head_dim();
        let mut part_of_q = |part: Range<usize>| -> Result<Linear> {
            let (stored, shape) = ([n_heads * head_dim, q_width], [n_heads * part.len(), q_width]);
            let rows = o.of_each_head(head_dim, part);
            Ok(Linear::new(self.tensors.pick(&q, &stored, &rows, &shape, Transform::None)?))
        };
        let (q_nope, q_rope) = (part_of_q(0..nope_dim)?, part_of_q(nope_dim..head_dim)?);
        let kv = at("attn_kv_a_mqa");
        let kv_down = self.linear_rows(&kv, rank + rope_dim, d_model, 0..rank)?;
        let k_rope = self.linear_rows(&kv, rank + rope_dim, d_model, rank..rank + rope_dim)?;
        let kv_norm = self.inner_norm(&at("attn_kv_a_norm.weight"), rank)?;
        let (k_up, v_up) = self.latent_up(layer, o)?;
        let o = self.linear(&at("attn_output"), d_model, n_heads * v_dim)?;
        Ok(Mixer::LatentAttention(Box::new(LatentAttention {
            q_down,
            q_nope,
            q_rope,
            kv_down,
            kv_norm,
            k_rope,
            k_up,
            v_up,
            o,
            n_heads,
            nope_dim,
            rope_dim,
            v_dim,
            rank,
            rope,
            scale,
        })))
    }

    /// What stands between heads and compressed rows: two stacks, or one matrix whose rows are each head's key and value.
    fn latent_up(&mut self, layer: usize, o: &LatentOptions) -> Result<(WeightId, WeightId)> {
        let &LatentOptions { n_heads, nope_dim, v_dim, rank, .. } = o;
        let at = |name: &str| format!("blk.{layer}.{name}.weight");
        let (k_shape, v_shape) = ([n_heads, rank, nope_dim], [n_heads, v_dim, rank]);
        if self.tensors.has(&at("attn_k_b")) {
            return Ok((
                self.tensors.weight(&at("attn_k_b"), &k_shape)?,
                self.tensors.weight(&at("attn_v_b"), &v_shape)?,
            ));
        }
        let width = nope_dim + v_dim;
        let stored = [n_heads * width, rank];
        let (k, v) = (o.of_each_head(width, 0..nope_dim), o.of_each_head(width, nope_dim..width));
        Ok((
            self.tensors.pick(&at("attn_kv_b"), &stored, &k, &k_shape, Transform::Transpose)?,
            self.tensors.pick(&at("attn_kv_b"), &stored, &v, &v_shape, Transform::None)?,
        ))
    }

    fn inner_norm(&mut self, short: &str, width: usize) -> Result<Norm> {
        let norm = self.norm_of(short, width)?;
        Ok(if self.settings.is_gguf() { norm } else { Norm { eps: INNER_EPS, ..norm } })
    }
}

const MSCALE_ALL_DIM: &str = "rope_parameters.mscale_all_dim|rope_scaling.mscale_all_dim";
