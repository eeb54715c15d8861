//! Zamba2: Mamba-2, and a few transformer blocks that take turns before some of the layers, each time with corrections of its
//! own. What such a block sees is the stream beside the embedding. Report: <https://arxiv.org/abs/2411.15242>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{Defaults, Reader, USUAL},
    recurrent::{Keys, MAMBA},
    settings::Settings,
    tensors::Names,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Attention, Dense, Linear, LowRank, Mixer, SharedBlock},
};

const NAMES: Names = &[
    ("attn_norm", "input_layernorm"),
    ("attn_norm", "mamba_decoder.input_layernorm"),
    ("ssm_in", "mamba.in_proj"),
    ("ssm_in", "mamba_decoder.mamba.in_proj"),
    ("ssm_conv1d", "mamba.conv1d"),
    ("ssm_conv1d", "mamba_decoder.mamba.conv1d"),
    ("ssm_dt.bias", "mamba.dt_bias"),
    ("ssm_dt.bias", "mamba_decoder.mamba.dt_bias"),
    ("ssm_a", "mamba.A_log"),
    ("ssm_a", "mamba_decoder.mamba.A_log"),
    ("ssm_d", "mamba.D"),
    ("ssm_d", "mamba_decoder.mamba.D"),
    ("ssm_norm", "mamba.norm"),
    ("ssm_norm", "mamba_decoder.mamba.norm"),
    ("ssm_out", "mamba.out_proj"),
    ("ssm_out", "mamba_decoder.mamba.out_proj"),
    ("shared_out", "linear"),
    ("shared_norm", "shared_transformer.input_layernorm"),
    ("shared_q", "shared_transformer.self_attn.q_proj"),
    ("shared_k", "shared_transformer.self_attn.k_proj"),
    ("shared_v", "shared_transformer.self_attn.v_proj"),
    ("shared_o", "shared_transformer.self_attn.o_proj"),
    ("shared_ff_norm", "shared_transformer.pre_ff_layernorm"),
    ("shared_gate_up", "shared_transformer.feed_forward.gate_up_proj"),
    ("shared_down", "shared_transformer.feed_forward.down_proj"),
    // Corrections: one a use of a block, the matrix to the rank and the one back.
    ("shared_q_low.#", "shared_transformer.self_attn.linear_q_adapter_list.#.0"),
    ("shared_q_high.#", "shared_transformer.self_attn.linear_q_adapter_list.#.1"),
    ("shared_k_low.#", "shared_transformer.self_attn.linear_k_adapter_list.#.0"),
    ("shared_k_high.#", "shared_transformer.self_attn.linear_k_adapter_list.#.1"),
    ("shared_v_low.#", "shared_transformer.self_attn.linear_v_adapter_list.#.0"),
    ("shared_v_high.#", "shared_transformer.self_attn.linear_v_adapter_list.#.1"),
    ("shared_gate_up_low.#", "shared_transformer.feed_forward.gate_up_proj_adapter_list.#.0"),
    ("shared_gate_up_high.#", "shared_transformer.feed_forward.gate_up_proj_adapter_list.#.1"),
];

const KEYS: Keys = Keys {
    d_inner: "",
    expand: "mamba_expand",
    dt_rank: "",
    d_state: ("mamba_d_state", 64),
    taps: ("mamba_d_conv", 4),
    n_heads: ("n_mamba_heads", 8),
    head_dim: ("", 0),
    n_groups: ("mamba_ngroups", 1),
    activation: "",
};

/// What configurations call a layer: whether a shared block stands before it.
const KINDS: &[(&str, bool)] = &[("mamba", false), ("linear_attention", false), ("hybrid", true)];

/// How the shared blocks are used.
struct Sharing {
    /// The layers with one before them.
    layers: Vec<usize>,
    /// Blocks that take turns.
    n_blocks: usize,
    rank: usize,
    /// Whether attention has corrections too.
    attention: bool,
    rope: Option<usize>,
    activation: Activation,
}

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r =
        Reader::hybrid(settings, checkpoint, NAMES, MAMBA)?.with_defaults(Defaults { eps: 1e-5, tied: true, ..USUAL });
    let mut sizes = r.mamba2_sizes(&KEYS)?;
    (sizes.shape.dt_min, sizes.shape.dt_max) = (r.least_time_step("time_step_min")?, f32::INFINITY);
    let sharing = r.sharing()?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = Mixer::Mamba2(Box::new(r.mamba2(layer, &sizes)?));
        let mut built = r.mixer_layer(layer, mixer)?;
        if let Some(turn) = sharing.layers.iter().position(|&at| at == layer) {
            built.shared = Some(Box::new(r.shared(layer, turn, &sharing)?));
        }
        layers.push(built);
    }
    r.finish(layers)
}

impl Reader<'_> {
    fn sharing(&mut self) -> Result<Sharing> {
        let (s, n_layers) = (&self.settings, self.sizes.n_layers);
        let layers: Vec<usize> = match s.kinds("layers_block_type|layer_types", n_layers, KINDS)? {
            Some(kinds) => (0..n_layers).filter(|&layer| kinds[layer]).collect(),
            None => {
                let listed = s.layers("hybrid_layer_ids", n_layers)?;
                listed.ok_or_else(|| Error::setting("layers_block_type", "is missing"))?
            }
        };
        let n_blocks = s.size_or("", ("num_mem_blocks", 1))?;
        let rank = s.size_or("", ("adapter_rank", 128))?;
        let attention = s.flag("use_shared_attention_adapter")?;
        let turns = s.flag("use_mem_rope")?;
        let activation = self.activation("hidden_act", Activation::GeluErf)?;
        let mut rope = None;
        if !layers.is_empty() {
            // Heads share the width of the stream and the embedding together.
            let n_heads = s.size("", "num_attention_heads")?;
            let width = 2 * self.sizes.d_model;
            if !width.is_multiple_of(n_heads) {
                let what = format!("width {width} does not divide by {n_heads} heads");
                return Err(Error::setting("num_attention_heads", what));
            }
            let n_kv_heads = self.sizes.n_kv_heads;
            let head_dim = Some(width / n_heads);
            self.sizes = self.sizes.with_heads(s, "num_attention_heads", n_heads, n_kv_heads, head_dim)?;
            rope = turns.then(|| self.rope(Pairing::Halves)).transpose()?;
        }
        Ok(Sharing { layers, n_blocks, rank, attention, rope, activation })
    }

    /// The block before layer `layer`, which is the `turn`th use of any.
    fn shared(&mut self, layer: usize, turn: usize, sharing: &Sharing) -> Result<SharedBlock> {
        let super::decoder::Sizes { d_model, n_heads, n_kv_heads, head_dim, d_ff, .. } = self.sizes;
        let (width, q_width, kv_width) = (2 * d_model, n_heads * head_dim, n_kv_heads * head_dim);
        let at = |r: &Self, name: &str| r.home(turn, sharing, name);
        let rank = sharing.rank;
        let projection = |r: &mut Self, name: &str, out: usize| -> Result<Linear> {
            let whole = r.linear(&at(r, &format!("shared_{name}")), out, width)?;
            if !sharing.attention {
                return Ok(whole);
            }
            let (low, high) = (format!("shared_{name}_low.{turn}"), format!("shared_{name}_high.{turn}"));
            let down = r.tensors.weight(&format!("{}.weight", at(r, &low)), &[rank, width])?;
            let up = r.tensors.weight(&format!("{}.weight", at(r, &high)), &[out, rank])?;
            Ok(whole.with_low_rank(Some(LowRank { down, up })))
        };
        let (q, k, v) =
            (projection(self, "q", q_width)?, projection(self, "k", kv_width)?, projection(self, "v", kv_width)?);
        let attention = Attention {
            q,
            k,
            v,
            o: self.linear(&at(self, "shared_o"), d_model, q_width)?,
            gate: None,
            conv: None,
            q_norm: None,
            k_norm: None,
            n_heads,
            n_kv_heads,
            head_dim,
            rope: sharing.rope,
            // A head's width counts the embedding's half too.
            scale: (head_dim as f32 / 2.0).sqrt().recip(),
            softcap: None,
            window: None,
            clip: None,
            sinks: None,
        };
        let fused = at(self, "shared_gate_up");
        let low = format!("{}.weight", at(self, &format!("shared_gate_up_low.{turn}")));
        let high = format!("{}.weight", at(self, &format!("shared_gate_up_high.{turn}")));
        let down = self.tensors.weight(&low, &[rank, d_model])?;
        let mut half = |rows: std::ops::Range<usize>| -> Result<Linear> {
            let up = self.tensors.rows(&high, &[2 * d_ff, rank], rows.clone())?;
            let whole = self.linear_rows(&fused, 2 * d_ff, d_model, rows)?;
            Ok(whole.with_low_rank(Some(LowRank { down, up })))
        };
        let (gate, up) = (half(0..d_ff)?, half(d_ff..2 * d_ff)?);
        let down = self.linear(&at(self, "shared_down"), d_model, d_ff)?;
        let activation = sharing.activation;
        Ok(SharedBlock {
            norm: self.norm_of(&format!("{}.weight", at(self, "shared_norm")), width)?,
            attention,
            ff_norm: self.norm_of(&format!("{}.weight", at(self, "shared_ff_norm")), d_model)?,
            feed_forward: Dense { gate: Some(gate), gate_scale: 1.0, up, down, activation },
            out: self.linear(&format!("blk.{layer}.shared_out"), d_model, d_model)?,
        })
    }

    /// What the tensor `name` of the `turn`th use is called: the layer's own, which untied models have, or else that of the
    /// first that has it of the layers with the same block.
    fn home(&self, turn: usize, sharing: &Sharing, name: &str) -> String {
        let own = format!("blk.{}.{name}", sharing.layers[turn]);
        if self.tensors.has(&format!("{own}.weight")) {
            return own;
        }
        let same = sharing.layers.iter().skip(turn % sharing.n_blocks).step_by(sharing.n_blocks);
        let mut names = same.map(|layer| format!("blk.{layer}.{name}"));
        let first = names.next().unwrap_or_default();
        if self.tensors.has(&format!("{first}.weight")) {
            return first;
        }
        names.find(|name| self.tensors.has(&format!("{name}.weight"))).unwrap_or(first)
    }
}
