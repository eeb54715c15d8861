//! Mamba-3: decays and rotations that depend on the input, trapezoidal inputs, perhaps of several ranks. Published models
//! are read by `state_spaces`; GGUF files have our own keys, since there are no others.
//! Paper: <https://arxiv.org/abs/2603.15569>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{AttentionOptions, QkNorm, Reader},
    settings::Settings,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, DecayActivation, Mamba3, Mamba3Shape, Mimo, Mixer, Norm},
};

/// The sizes of a [`Mamba3`] and its options.
pub(super) struct Mamba3Sizes {
    pub shape: Mamba3Shape,
    /// Whether inputs, gates and outputs have weights for each rank.
    pub mimo: bool,
    /// Whether the result is normed.
    pub normed: bool,
}

/// The activation of the raw decay by its name. Files that name none are taken for the newer kind.
pub(super) fn decay_activation(s: &Settings<'_>, gguf: &str, hf: &str) -> Result<DecayActivation> {
    match s.word(gguf, hf)? {
        None | Some("heavy_tail") => Ok(DecayActivation::HeavyTail),
        Some("softplus") => Ok(DecayActivation::Softplus),
        Some(other) => {
            Err(Error::setting(s.name(gguf, hf), format!("`{other}` is not known (heavy_tail, softplus are)")))
        }
    }
}

impl Reader<'_> {
    /// The Mamba-3 of layer `layer`.
    pub fn mamba3(&mut self, layer: usize, sizes: &Mamba3Sizes) -> Result<Mamba3> {
        let (d_model, eps, shape) = (self.sizes.d_model, self.sizes.eps, sizes.shape);
        let (d_inner, n_heads, rank, d_state) = (shape.d_inner(), shape.n_heads, shape.rank, shape.d_state);
        let head_dim = shape.head_dim;
        let bc = self.settings.product("ssm.state_size", "ssm_cfg.d_state", [rank, shape.n_groups, d_state])?;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let widths = [d_inner, d_inner, bc, bc, n_heads, n_heads, n_heads, shape.n_angles];
        let total = widths.iter().sum();
        let mut start = 0;
        let input = at("ssm_in");
        let mut next = |r: &mut Self, width: usize| {
            start += width;
            r.linear_rows(&input, total, d_model, start - width..start)
        };
        let z = next(self, widths[0])?;
        let x = next(self, widths[1])?;
        let (b, c) = (next(self, widths[2])?, next(self, widths[3])?);
        let (dt, a, trap) = (next(self, widths[4])?, next(self, widths[5])?, next(self, widths[6])?);
        let angle = next(self, widths[7])?;
        let norm = if !sizes.normed {
            None
        } else if sizes.mimo {
            // A head's weights are the same for each of its ranks.
            let heads = (0..n_heads).map(|head| head * head_dim..(head + 1) * head_dim);
            let ranges: Vec<_> = heads.flat_map(|head| std::iter::repeat_n(head, rank)).collect();
            let weight = self.tensors.gather(&at("ssm_norm.weight"), &[d_inner], &ranges)?;
            Some(Norm { weight: Some(weight), group: head_dim, eps })
        } else {
            let weight = self.tensors.weight(&at("ssm_norm.weight"), &[d_inner])?;
            Some(Norm { weight: Some(weight), group: head_dim, eps })
        };
        let mimo = if sizes.mimo {
            let ranks = [n_heads, rank, head_dim];
            let mut weight = |name: &str| self.tensors.weight(&at(name), &ranks);
            Some(Mimo { x: weight("ssm_mimo_x")?, z: weight("ssm_mimo_z")?, o: weight("ssm_mimo_o")? })
        } else {
            None
        };
        Ok(Mamba3 {
            z,
            x,
            b,
            c,
            dt,
            a,
            trap,
            angle,
            b_norm: self.norm_of(&at("ssm_b_norm.weight"), d_state)?,
            c_norm: self.norm_of(&at("ssm_c_norm.weight"), d_state)?,
            dt_bias: self.tensors.weight(&at("ssm_dt.bias"), &[n_heads])?,
            b_bias: self.tensors.weight(&at("ssm_b_bias"), &[n_heads, rank, d_state])?,
            c_bias: self.tensors.weight(&at("ssm_c_bias"), &[n_heads, rank, d_state])?,
            d: self.tensors.weight(&at("ssm_d"), &[n_heads])?,
            mimo,
            norm,
            shape,
            out: self.linear(&at("ssm_out"), d_model, d_inner)?,
        })
    }

    fn mamba3_sizes(&self) -> Result<Mamba3Sizes> {
        let s = &self.settings;
        let (d_inner, n_heads) = (s.size("ssm.inner_size", "")?, s.size("ssm.time_step_rank", "")?);
        if !d_inner.is_multiple_of(n_heads) {
            let what = format!("a width of {d_inner} does not divide by {n_heads}");
            return Err(Error::setting(s.name("ssm.time_step_rank", ""), what));
        }
        let rank = s.count("ssm.mimo_rank", "")?;
        let pairing = match s.word("ssm.rope_pairing", "")? {
            Some("interleaved") => Pairing::Interleaved,
            Some("half") => Pairing::Halves,
            None if rank.is_some() => Pairing::Halves,
            None => Pairing::Interleaved,
            Some(other) => {
                let what = format!("`{other}` is not known (interleaved, half are)");
                return Err(Error::setting(s.name("ssm.rope_pairing", ""), what));
            }
        };
        let shape = Mamba3Shape {
            n_heads,
            head_dim: d_inner / n_heads,
            n_groups: s.size("ssm.group_count", "")?,
            d_state: s.size("ssm.state_size", "")?,
            rank: s.positive("ssm.mimo_rank", "", rank.unwrap_or(1))?,
            n_angles: s.size("ssm.rope_angles", "")?,
            pairing,
            a_activation: decay_activation(s, "ssm.a_activation", "")?,
            a_floor: s.scale("ssm.a_floor", "", 1e-4)?,
        };
        let normed = s.switch("ssm.outproj_norm", "", false)?;
        checked(s, Mamba3Sizes { shape, mimo: rank.is_some(), normed })
    }
}

/// What holds for every Mamba-3.
pub(super) fn checked(s: &Settings<'_>, sizes: Mamba3Sizes) -> Result<Mamba3Sizes> {
    let Mamba3Shape { n_heads, n_groups, d_state, n_angles, a_floor, .. } = sizes.shape;
    if !n_heads.is_multiple_of(n_groups) {
        let what = format!("{n_heads} heads do not divide by {n_groups} groups");
        return Err(Error::setting(s.name("ssm.group_count", "ssm_cfg.ngroups"), what));
    }
    if n_angles == 0 || 2 * n_angles > d_state {
        let what = format!("{n_angles} pairs of {d_state} states cannot turn");
        return Err(Error::setting(s.name("ssm.rope_angles", "ssm_cfg.rope_fraction"), what));
    }
    if sizes.shape.pairing == Pairing::Halves && !d_state.is_multiple_of(2) {
        let what = format!("{d_state} states have no two halves");
        return Err(Error::setting(s.name("ssm.state_size", "ssm_cfg.d_state"), what));
    }
    if a_floor < 0.0 {
        return Err(Error::setting(s.name("ssm.a_floor", "ssm_cfg.A_floor"), format!("is {a_floor}")));
    }
    Ok(sizes)
}

/// GGUF: `mamba3`, or `mamba3hybrid` where some layers attend (those with key heads).
pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, &[], &[])?;
    let sizes = r.mamba3_sizes()?;
    let n_layers = r.sizes.n_layers;
    let kv_heads = r.settings.counts("attention.head_count_kv", "", n_layers)?.unwrap_or(vec![0; n_layers]);
    let turned = r.settings.count("rope.dimension_count", "")?.unwrap_or(0);
    let attends = kv_heads.iter().any(|&n| n > 0);
    let rope = if turned > 0 && attends { Some(r.rope(Pairing::Halves)?) } else { None };
    let options = AttentionOptions { rope, qk_norm: QkNorm::None, ..r.options_without_rope() };
    let mut layers = vec![];
    for (layer, n_kv_heads) in kv_heads.into_iter().enumerate() {
        let mixer = match n_kv_heads {
            0 => Mixer::Mamba3(Box::new(r.mamba3(layer, &sizes)?)),
            n => r.attention_over(layer, n, &options)?,
        };
        layers.push(if r.tensors.has(&format!("blk.{layer}.ffn_up.weight")) {
            let feed_forward = r.dense(layer, Activation::Silu)?;
            r.pre_norm_layer(layer, mixer, feed_forward)?
        } else {
            r.mixer_layer(layer, mixer)?
        });
    }
    r.finish(layers)
}
