//! What mixes positions: attention and the recurrent layers.

use super::{CssdShape, DeltaShape, InputRule, Linear, LowRank, Mamba3Shape, Norm, SsdShape};
use crate::weights::WeightId;

/// What mixes positions.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Softmax attention with a cache.
    Attention(Box<Attention>),
    /// Attention over a compressed cache (DeepSeek's MLA).
    LatentAttention(Box<LatentAttention>),
    /// Selective scan: a diagonal state for each channel.
    Mamba1(Box<Mamba1>),
    /// State-space duality: a matrix state for each head, one decay a head.
    Mamba2(Box<Mamba2>),
    /// The published Mamba-3: rotary, trapezoidal, optionally with several inputs and outputs.
    Mamba3(Box<Mamba3>),
    /// Complex SSD, the layer that MBJS files call `mamba3`.
    Cssd(Box<Cssd>),
    /// A gated short convolution (LFM2).
    ShortConv(ShortConv),
    /// The gated delta rule (Qwen3-Next).
    DeltaNet(Box<DeltaNet>),
    /// Several mixers side by side on one input, their results summed (Falcon-H1).
    Parallel(Vec<Branch>),
}

/// One of several mixers side by side: `output_scale · mixer(input_scale · n)`.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Multiplies the input.
    pub input_scale: f32,
    /// What it does.
    pub mixer: Mixer,
    /// Multiplies the result.
    pub output_scale: f32,
}

/// Causal softmax attention with grouped heads: query head `i` reads key head `i / (n_heads / n_kv_heads)`.
#[derive(Clone, Debug)]
pub struct Attention {
    /// To queries, `[n_heads · head_dim, width]`; the width is `d_model`, twice that in a shared block.
    pub q: Linear,
    /// To keys, `[n_kv_heads · head_dim, width]`.
    pub k: Linear,
    /// To values, `[n_kv_heads · head_dim, width]`.
    pub v: Linear,
    /// Back to the stream, `[d_model, n_heads · head_dim]`.
    pub o: Linear,
    /// To gates, `[n_heads · head_dim, width]`: the heads' results are multiplied by their sigmoid (Qwen3-Next).
    pub gate: Option<Linear>,
    /// Convolutions of queries, keys and values, before norms and rotation (hybrids of state-spaces).
    pub conv: Option<[Conv; 3]>,
    /// Norm of the queries before the rotation: per head, or over all heads.
    pub q_norm: Option<Norm>,
    /// Norm of the keys before the rotation.
    pub k_norm: Option<Norm>,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Index into [`ModelSpec::ropes`](super::ModelSpec::ropes); `None` for attention without positions.
    pub rope: Option<usize>,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, itself included; all before it where `None`.
    pub window: Option<usize>,
    /// Queries, keys and values are held within `±clip`, after their norms and before the rotation (OLMoE).
    pub clip: Option<f32>,
    /// `[n_heads]`: one more score a head, whose value is zero (gpt-oss).
    pub sinks: Option<WeightId>,
}

/// Multi-head latent attention in its absorbed form: the cache holds one compressed row and one rotated key a position,
/// which all heads read. Paper: <https://arxiv.org/abs/2405.04434>.
#[derive(Clone, Debug)]
pub struct LatentAttention {
    /// Compression of the queries, `[q_rank, d_model]`, and its norm; none in the small models.
    pub q_down: Option<(Linear, Norm)>,
    /// To the queries' parts without positions, `[n_heads · nope_dim, _]`.
    pub q_nope: Linear,
    /// To the queries' parts with positions, `[n_heads · rope_dim, _]`.
    pub q_rope: Linear,
    /// To the compressed row, `[rank, d_model]`.
    pub kv_down: Linear,
    /// Its norm.
    pub kv_norm: Norm,
    /// To the one key with positions, `[rope_dim, d_model]`.
    pub k_rope: Linear,
    /// From each head's query to the compressed row, `[n_heads, rank, nope_dim]`.
    pub k_up: WeightId,
    /// From the compressed row to each head's value, `[n_heads, v_dim, rank]`.
    pub v_up: WeightId,
    /// Back to the stream, `[d_model, n_heads · v_dim]`.
    pub o: Linear,
    /// Heads.
    pub n_heads: usize,
    /// Width of a head's part without positions.
    pub nope_dim: usize,
    /// Width of the part with positions.
    pub rope_dim: usize,
    /// Width of a head's value.
    pub v_dim: usize,
    /// Width of the compressed row.
    pub rank: usize,
    /// Index into [`ModelSpec::ropes`](super::ModelSpec::ropes).
    pub rope: usize,
    /// Multiplies the scores.
    pub scale: f32,
}

/// A depthwise causal convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// `[channels, taps]`; the last tap meets the current token.
    pub weight: WeightId,
    /// `[channels]`.
    pub bias: Option<WeightId>,
    /// Whether SiLU follows.
    pub silu: bool,
}

/// Mamba-1 (S6). Paper: <https://arxiv.org/abs/2312.00752>.
#[derive(Clone, Debug)]
pub struct Mamba1 {
    /// To the inputs, `[d_inner, d_model]`.
    pub x: Linear,
    /// To the gates, `[d_inner, d_model]`.
    pub z: Linear,
    /// Over the inputs.
    pub conv: Conv,
    /// From the convolved inputs to the compressed time steps, `[dt_rank, d_inner]`.
    pub dt: Linear,
    /// To B, `[d_state, d_inner]`.
    pub b: Linear,
    /// To C, `[d_state, d_inner]`.
    pub c: Linear,
    /// Norms of the compressed time steps, B and C (Jamba, Falcon-Mamba).
    pub norms: Option<[Norm; 3]>,
    /// To the time steps, `[d_inner, dt_rank]`; its bias belongs inside the softplus.
    pub dt_up: Linear,
    /// A, negative, `[d_inner, d_state]`.
    pub a: WeightId,
    /// `[d_inner]`.
    pub d: WeightId,
    /// How inputs enter the state.
    pub input: InputRule,
    /// Back to the stream, `[d_model, d_inner]`.
    pub out: Linear,
}

/// Mamba-2 (SSD). Paper: <https://arxiv.org/abs/2405.21060>.
#[derive(Clone, Debug)]
pub struct Mamba2 {
    /// To the gates, `[d_inner, d_model]`; MBJS has none.
    pub z: Option<Linear>,
    /// Multiplies the gates.
    pub z_scale: f32,
    /// To inputs, B and C, `[d_inner + 2 · n_groups · d_state, d_model]`.
    pub xbc: Linear,
    /// Over those.
    pub conv: Conv,
    /// To the raw time steps, `[n_heads, d_model]`.
    pub dt: Linear,
    /// Multiplies the raw time steps.
    pub dt_scale: f32,
    /// A, negative, `[n_heads]`.
    pub a: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// Added to the raw time steps, `[n_heads]`.
    pub dt_bias: WeightId,
    /// Sizes of the recurrence.
    pub shape: SsdShape,
    /// Norm of the result, in groups.
    pub norm: Option<Norm>,
    /// Whether the norm comes before the gate. Published Mamba-2 gates first.
    pub norm_before_gate: bool,
    /// Back to the stream, `[d_model, d_inner]`.
    pub out: Linear,
}

/// The published Mamba-3. Paper: <https://arxiv.org/abs/2603.15569>.
#[derive(Clone, Debug)]
pub struct Mamba3 {
    /// To the gates, `[d_inner, d_model]`.
    pub z: Linear,
    /// To the inputs, `[d_inner, d_model]`.
    pub x: Linear,
    /// To B, `[rank · n_groups · d_state, d_model]`.
    pub b: Linear,
    /// To C, `[rank · n_groups · d_state, d_model]`.
    pub c: Linear,
    /// To the raw time steps, `[n_heads, d_model]`.
    pub dt: Linear,
    /// To the raw decays, `[n_heads, d_model]`.
    pub a: Linear,
    /// To the raw weights of the trapezoid, `[n_heads, d_model]`.
    pub trap: Linear,
    /// To the raw angles, `[n_angles, d_model]`.
    pub angle: Linear,
    /// Of each rank and group of B.
    pub b_norm: Norm,
    /// Of each rank and group of C.
    pub c_norm: Norm,
    /// `[n_heads]`.
    pub dt_bias: WeightId,
    /// Added to B after its norm, `[n_heads, rank, d_state]`.
    pub b_bias: WeightId,
    /// Added to C after its norm, `[n_heads, rank, d_state]`.
    pub c_bias: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// Weights of the ranks, where there are several.
    pub mimo: Option<Mimo>,
    /// Norm of the result, a head at a time, before the gate.
    pub norm: Option<Norm>,
    /// Sizes of the recurrence.
    pub shape: Mamba3Shape,
    /// Back to the stream, `[d_model, d_inner]`.
    pub out: Linear,
}

/// How a head's row becomes several and one again, each `[n_heads, rank, head_dim]`.
#[derive(Clone, Copy, Debug)]
pub struct Mimo {
    /// Inputs.
    pub x: WeightId,
    /// Gates.
    pub z: WeightId,
    /// Outputs.
    pub o: WeightId,
}

/// Complex SSD: the layer that MBJS files call `mamba3`. No gate, no activation after the convolution.
#[derive(Clone, Debug)]
pub struct Cssd {
    /// To inputs, B and C, `[width, d_model]`.
    pub xbc: Linear,
    /// Over those.
    pub conv: Conv,
    /// To the raw time steps, `[n_heads, d_model]`.
    pub dt: Linear,
    /// Logarithm of the magnitude and phase, `[n_heads, 2]`.
    pub a_log: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// `[n_heads]`.
    pub dt_bias: WeightId,
    /// Sizes of the recurrence.
    pub shape: CssdShape,
    /// Norm of the result.
    pub norm: Norm,
    /// Back to the stream, `[d_model, d_inner]`.
    pub out: Linear,
}

/// A gated short convolution: `out(c ⊙ conv(b ⊙ x))`. Report: <https://arxiv.org/abs/2511.23404>.
#[derive(Clone, Copy, Debug)]
pub struct ShortConv {
    /// `[d_model, d_model]`.
    pub b: Linear,
    /// `[d_model, d_model]`.
    pub c: Linear,
    /// `[d_model, d_model]`.
    pub x: Linear,
    /// Over `b ⊙ x`.
    pub conv: Conv,
    /// Back to the stream, `[d_model, d_model]`.
    pub out: Linear,
}

/// Gated DeltaNet. Paper: <https://arxiv.org/abs/2412.06464>.
#[derive(Clone, Debug)]
pub struct DeltaNet {
    /// To queries, keys and values, `[width, d_model]`.
    pub qkv: Linear,
    /// To the gates, `[d_inner, d_model]`.
    pub z: Linear,
    /// To the raw strengths of writing, `[n_v_heads, d_model]`.
    pub b: Linear,
    /// To the raw decays, `[n_v_heads, d_model]`.
    pub a: Linear,
    /// Over queries, keys and values.
    pub conv: Conv,
    /// A, negative, `[n_v_heads]`.
    pub a_weight: WeightId,
    /// `[n_v_heads]`.
    pub dt_bias: WeightId,
    /// Sizes of the recurrence.
    pub shape: DeltaShape,
    /// Norm of the result, a head at a time, before the gate.
    pub norm: Norm,
    /// Back to the stream, `[d_model, d_inner]`.
    pub out: Linear,
}

/// A transformer block that several layers share: it reads the stream beside the embedding, and what it gives is added to
/// what the layer's mixer sees, not to the stream (Zamba2). Report: <https://arxiv.org/abs/2411.15242>.
#[derive(Clone, Debug)]
pub struct SharedBlock {
    /// Of the stream and the embedding in one row, `[2 · d_model]`.
    pub norm: Norm,
    /// From that row to the stream's width.
    pub attention: Attention,
    /// Norm of the attention's result.
    pub ff_norm: Norm,
    /// What follows, without a residual.
    pub feed_forward: super::Dense,
    /// To what is added, `[d_model, d_model]`.
    pub out: Linear,
}

impl Linear {
    /// Without a bias.
    pub fn new(weight: WeightId) -> Self {
        Self { weight, bias: None, low_rank: None }
    }

    /// With a correction of low rank.
    pub fn with_low_rank(self, low_rank: Option<LowRank>) -> Self {
        Self { low_rank, ..self }
    }
}
