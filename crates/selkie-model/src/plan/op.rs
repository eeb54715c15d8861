//! The operations that a plan may name.

use super::{BufferId, SlotId};
use crate::{
    spec::{Activation, CssdShape, DeltaShape, InputRule, Mamba3Shape, Mixture, SsdShape},
    weights::WeightId,
};

/// One operation. Fields name what it reads first and what it writes (`out`) last.
///
/// The first group is what plans are built of, and what gradients are derived from. The second is written by
/// [`fuse`](super::fuse()) only; each has its definition in ops of the first.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named as in the formulas above them")]
pub enum Op {
    /// `out[r] = scale · table[ids[r]]`, rows of `[vocab_size, d_model]`.
    Embed { table: WeightId, scale: f32, out: BufferId },
    /// `out = x / sqrt(mean(x²) + eps) · weight`, over groups of `group` values; see [`Norm`](crate::spec::Norm).
    RmsNorm { x: BufferId, weight: Option<WeightId>, group: usize, eps: f32, out: BufferId },
    /// `out = x · weightᵀ + bias`: `[rows, in]` to `[rows, out]`.
    Linear { x: BufferId, product: Product },
    /// Turns the first channels of every head by its position's angles.
    Rope { x: BufferId, rope: usize, head_dim: usize, out: BufferId },
    /// Appends k and v to the cache, then `out = softmax(scale · q · Kᵀ) · V` over the positions up to each row's own.
    Attention(AttentionOp),
    /// `out[t] = Σ weight[k] · x[t - (taps - 1) + k] + bias` for each channel, then SiLU where asked for. The state holds
    /// the rows before the first.
    CausalConv { x: BufferId, weight: WeightId, bias: Option<WeightId>, silu: bool, state: SlotId, out: BufferId },
    /// Mamba-1's recurrence.
    SelectiveScan(SelectiveScanOp),
    /// Mamba-2's recurrence.
    Ssd(SsdOp),
    /// Mamba-3's recurrence.
    Mamba3(Mamba3Op),
    /// The complex recurrence of MBJS.
    Cssd(CssdOp),
    /// The gated delta rule.
    DeltaRule(DeltaRuleOp),
    /// `out = activation(x)`.
    Activate { x: BufferId, activation: Activation, out: BufferId },
    /// `out[r] = σ(gate[r]) · x[r]`, one gate a row.
    ScaleRows { x: BufferId, gate: BufferId, out: BufferId },
    /// Head by head, `a`'s values and then `b`'s.
    JoinHeads { a: BufferId, b: BufferId, n_heads: usize, out: BufferId },
    /// Head by head, `out = x · weightᵀ`: `[rows, n_heads · in]` by `[n_heads, out, in]`.
    HeadLinear { x: BufferId, weight: WeightId, n_heads: usize, out: BufferId },
    /// `out[h, r] = weight[h, r] · x[h]`: a row `[n_heads, head_dim]` becomes `[n_heads, rank, head_dim]`.
    RankExpand { x: BufferId, weight: WeightId, head_dim: usize, out: BufferId },
    /// `out[h] = Σ weight[h, r] · x[h, r]` over ranks: the way back.
    RankReduce { x: BufferId, weight: WeightId, head_dim: usize, out: BufferId },
    /// `out = activation(gate) · up`.
    Glu { gate: BufferId, up: BufferId, activation: Activation, out: BufferId },
    /// Each row through its chosen experts: `out = Σ weight · down(activation(gate(x)) · up(x))`.
    Mixture { x: BufferId, mixture: Mixture, out: BufferId },
    /// `out = x + scale · y`.
    Add { x: BufferId, y: BufferId, scale: f32, out: BufferId },
    /// `out = scale · x`.
    Scale { x: BufferId, scale: f32, out: BufferId },
    /// `out = x`, held within `±limit`.
    Clamp { x: BufferId, limit: f32, out: BufferId },
    /// `out = cap · tanh(x / cap)`.
    SoftCap { x: BufferId, cap: f32, out: BufferId },
    /// The rows whose output is wanted.
    TakeRows { x: BufferId, out: BufferId },

    /// Several [`Linear`](Op::Linear) of one input.
    Linears { x: BufferId, products: Vec<Product> },
    /// `activation(gate(x)) · up(x)`: two [`Linear`](Op::Linear) and a [`Glu`](Op::Glu). The products' own `out` are
    /// scratch.
    LinearGlu { x: BufferId, gate: Product, up: Product, activation: Activation, out: BufferId },
    /// `residual + scale · linear(x)`: a [`Linear`](Op::Linear) and an [`Add`](Op::Add).
    LinearAdd { x: BufferId, weight: WeightId, bias: Option<WeightId>, residual: BufferId, scale: f32, out: BufferId },
}

/// One product of a [`Op::Linear`]: `out = x · weightᵀ + bias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// `[out, in]`.
    pub weight: WeightId,
    /// `[out]`.
    pub bias: Option<WeightId>,
    /// `[rows, out]`.
    pub out: BufferId,
}

/// Attention over a sequence's cache; see [`Attention`](crate::spec::Attention).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOp {
    /// `[rows, n_heads · head_dim]`.
    pub q: BufferId,
    /// `[rows, n_kv_heads · head_dim]`.
    pub k: BufferId,
    /// `[rows, n_kv_heads · v_head_dim]`.
    pub v: BufferId,
    /// Where earlier keys and values are.
    pub cache: SlotId,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a query or key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub v_head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, itself included.
    pub window: Option<usize>,
    /// `[n_heads]`: one more score a head, whose value is zero.
    pub sinks: Option<WeightId>,
    /// `[rows, n_heads · v_head_dim]`.
    pub out: BufferId,
}

/// Mamba-1's recurrence for each channel and state: `h = exp(Δ·A) · h + input(Δ, A) · B · x`, `out = Σ C · h + D · x`, with
/// `Δ = softplus(dt)`; see [`Mamba1`](crate::spec::Mamba1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveScanOp {
    /// `[rows, d_inner]`.
    pub x: BufferId,
    /// Before the softplus, `[rows, d_inner]`.
    pub dt: BufferId,
    /// `[rows, d_state]`.
    pub b: BufferId,
    /// `[rows, d_state]`.
    pub c: BufferId,
    /// Negative, `[d_inner, d_state]`.
    pub a: WeightId,
    /// `[d_inner]`.
    pub d: WeightId,
    /// How inputs enter.
    pub input: InputRule,
    /// `[d_inner, d_state]`.
    pub state: SlotId,
    /// `[rows, d_inner]`.
    pub out: BufferId,
}

/// Mamba-2's recurrence for each head: `S = exp(Δ·A) · S + Δ · x · Bᵀ`, `out = S · C + D · x`, with
/// `Δ = clamp(softplus(dt + dt_bias))`; see [`Mamba2`](crate::spec::Mamba2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdOp {
    /// Inputs, B and C side by side, `[rows, d_inner + 2 · n_groups · d_state]`.
    pub xbc: BufferId,
    /// Before the softplus, `[rows, n_heads]`.
    pub dt: BufferId,
    /// Negative, `[n_heads]`.
    pub a: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// `[n_heads]`.
    pub dt_bias: WeightId,
    /// Sizes.
    pub shape: SsdShape,
    /// `[n_heads, head_dim, d_state]`.
    pub state: SlotId,
    /// `[rows, d_inner]`.
    pub out: BufferId,
}

/// Mamba-3's recurrence for each head: `S = α · S + β · x₋₁ · k₋₁ᵀ + γ · x · kᵀ`, `out = S · q + D · x`, with B and C turned
/// into k and q by angles that add up; see [`Mamba3`](crate::spec::Mamba3) and its paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mamba3Op {
    /// `[rows, d_inner]`.
    pub x: BufferId,
    /// Normed, `[rows, rank · n_groups · d_state]`.
    pub b: BufferId,
    /// Normed, `[rows, rank · n_groups · d_state]`.
    pub c: BufferId,
    /// Before the softplus, `[rows, n_heads]`.
    pub dt: BufferId,
    /// Before its activation, `[rows, n_heads]`.
    pub a: BufferId,
    /// Before the sigmoid, `[rows, n_heads]`.
    pub trap: BufferId,
    /// Before the tanh, `[rows, n_angles]`.
    pub angle: BufferId,
    /// `[n_heads]`.
    pub dt_bias: WeightId,
    /// `[n_heads, rank, d_state]`.
    pub b_bias: WeightId,
    /// `[n_heads, rank, d_state]`.
    pub c_bias: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// Weights of the inputs' ranks, `[n_heads, rank, head_dim]`.
    pub mimo_x: Option<WeightId>,
    /// Sizes.
    pub shape: Mamba3Shape,
    /// Angles `[n_heads, n_angles]`, states `[n_heads, head_dim, d_state]`, the last key `[n_heads, rank, d_state]` and input
    /// `[n_heads, head_dim]`.
    pub state: SlotId,
    /// `[rows, n_heads · rank · head_dim]`.
    pub out: BufferId,
}

/// The complex recurrence for each head: `s = ā · s + f · B · x`, `out = Re(Σ conj(C) · s) + D · x`; see
/// [`Cssd`](crate::spec::Cssd).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CssdOp {
    /// Inputs, B and C side by side, `[rows, d_inner + 4 · n_groups · d_state]`; B and C as pairs of real and imaginary
    /// parts.
    pub xbc: BufferId,
    /// Before the softplus, `[rows, n_heads]`.
    pub dt: BufferId,
    /// Logarithm of the magnitude and phase, `[n_heads, 2]`.
    pub a_log: WeightId,
    /// `[n_heads]`.
    pub d: WeightId,
    /// `[n_heads]`.
    pub dt_bias: WeightId,
    /// Sizes.
    pub shape: CssdShape,
    /// `[n_heads, head_dim, d_state, 2]`.
    pub state: SlotId,
    /// `[rows, d_inner]`.
    pub out: BufferId,
}

/// The gated delta rule for each value head: `S = e^g · S`, `S += β · k · (v - Sᵀ·k)ᵀ`, `out = Sᵀ · q / √k_dim`, with
/// `g = A · softplus(a + dt_bias)`, `β = σ(b)`, and q and k of length one; see [`DeltaNet`](crate::spec::DeltaNet).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaRuleOp {
    /// Queries, keys and values side by side, `[rows, width]`.
    pub qkv: BufferId,
    /// Before the sigmoid, `[rows, n_v_heads]`.
    pub b: BufferId,
    /// Before the softplus, `[rows, n_v_heads]`.
    pub a: BufferId,
    /// Negative, `[n_v_heads]`.
    pub a_weight: WeightId,
    /// `[n_v_heads]`.
    pub dt_bias: WeightId,
    /// Sizes.
    pub shape: DeltaShape,
    /// `[n_v_heads, k_dim, v_dim]`.
    pub state: SlotId,
    /// `[rows, n_v_heads · v_dim]`.
    pub out: BufferId,
}

impl Op {
    /// The name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::Linear { .. } => "linear",
            Op::Rope { .. } => "rope",
            Op::Attention(_) => "attention",
            Op::CausalConv { .. } => "causal_conv",
            Op::SelectiveScan(_) => "selective_scan",
            Op::Ssd(_) => "ssd",
            Op::Mamba3(_) => "mamba3",
            Op::Cssd(_) => "cssd",
            Op::DeltaRule(_) => "delta_rule",
            Op::Activate { .. } => "activate",
            Op::ScaleRows { .. } => "scale_rows",
            Op::JoinHeads { .. } => "join_heads",
            Op::HeadLinear { .. } => "head_linear",
            Op::RankExpand { .. } => "rank_expand",
            Op::RankReduce { .. } => "rank_reduce",
            Op::Glu { .. } => "glu",
            Op::Mixture { .. } => "mixture",
            Op::Add { .. } => "add",
            Op::Scale { .. } => "scale",
            Op::Clamp { .. } => "clamp",
            Op::SoftCap { .. } => "soft_cap",
            Op::TakeRows { .. } => "take_rows",
            Op::Linears { .. } => "linears",
            Op::LinearGlu { .. } => "linear_glu",
            Op::LinearAdd { .. } => "linear_add",
        }
    }

    /// The buffers that it reads.
    pub fn inputs(&self) -> Vec<BufferId> {
        match self {
            Op::Embed { .. } => vec![],
            Op::RmsNorm { x, .. }
            | Op::Linear { x, .. }
            | Op::Rope { x, .. }
            | Op::Mixture { x, .. }
            | Op::Scale { x, .. }
            | Op::Clamp { x, .. }
            | Op::SoftCap { x, .. }
            | Op::TakeRows { x, .. }
            | Op::CausalConv { x, .. }
            | Op::Activate { x, .. }
            | Op::HeadLinear { x, .. }
            | Op::RankExpand { x, .. }
            | Op::RankReduce { x, .. }
            | Op::Linears { x, .. }
            | Op::LinearGlu { x, .. } => vec![*x],
            Op::Attention(a) => vec![a.q, a.k, a.v],
            Op::SelectiveScan(o) => vec![o.x, o.dt, o.b, o.c],
            Op::Ssd(o) => vec![o.xbc, o.dt],
            Op::Mamba3(o) => vec![o.x, o.b, o.c, o.dt, o.a, o.trap, o.angle],
            Op::Cssd(o) => vec![o.xbc, o.dt],
            Op::DeltaRule(o) => vec![o.qkv, o.b, o.a],
            Op::ScaleRows { x, gate, .. } => vec![*x, *gate],
            Op::JoinHeads { a, b, .. } => vec![*a, *b],
            Op::Glu { gate, up, .. } => vec![*gate, *up],
            Op::Add { x, y, .. } => vec![*x, *y],
            Op::LinearAdd { x, residual, .. } => vec![*x, *residual],
        }
    }

    /// The buffers that it writes.
    pub fn outputs(&self) -> Vec<BufferId> {
        match self {
            Op::Linear { product, .. } => vec![product.out],
            Op::Linears { products, .. } => products.iter().map(|p| p.out).collect(),
            Op::Attention(a) => vec![a.out],
            Op::SelectiveScan(o) => vec![o.out],
            Op::Ssd(o) => vec![o.out],
            Op::Mamba3(o) => vec![o.out],
            Op::Cssd(o) => vec![o.out],
            Op::DeltaRule(o) => vec![o.out],
            Op::CausalConv { out, .. }
            | Op::Activate { out, .. }
            | Op::ScaleRows { out, .. }
            | Op::JoinHeads { out, .. }
            | Op::HeadLinear { out, .. }
            | Op::RankExpand { out, .. }
            | Op::RankReduce { out, .. }
            | Op::Embed { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::Rope { out, .. }
            | Op::Glu { out, .. }
            | Op::Mixture { out, .. }
            | Op::Add { out, .. }
            | Op::Scale { out, .. }
            | Op::Clamp { out, .. }
            | Op::SoftCap { out, .. }
            | Op::TakeRows { out, .. }
            | Op::LinearGlu { out, .. }
            | Op::LinearAdd { out, .. } => vec![*out],
        }
    }
}

impl Op {
    /// The slot of the state that it reads and writes.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            Op::Attention(o) => Some(o.cache),
            Op::SelectiveScan(o) => Some(o.state),
            Op::Ssd(o) => Some(o.state),
            Op::Mamba3(o) => Some(o.state),
            Op::Cssd(o) => Some(o.state),
            Op::DeltaRule(o) => Some(o.state),
            Op::CausalConv { state, .. } => Some(*state),
            _ => None,
        }
    }

    /// The weights that it reads: matrices it multiplies with or takes rows of, stacks of matrices, and small weights.
    pub fn weights(&self) -> OpWeights {
        let mut w = OpWeights::default();
        match self {
            Op::Embed { table, .. } => w.matrices.push(*table),
            Op::RmsNorm { weight, .. } => w.vectors.extend(*weight),
            Op::Linear { product, .. } => w.product(product),
            Op::Linears { products, .. } => products.iter().for_each(|product| w.product(product)),
            Op::LinearGlu { gate, up, .. } => [gate, up].into_iter().for_each(|product| w.product(product)),
            Op::LinearAdd { weight, bias, .. } => {
                w.matrices.push(*weight);
                w.vectors.extend(*bias);
            }
            Op::Mixture { mixture: m, .. } => {
                w.matrices.push(m.router);
                w.stacks.extend(m.gate);
                w.stacks.extend([m.up, m.down]);
                w.vectors.extend(m.router_bias);
                w.vectors.extend(m.routing.choice_bias);
                w.vectors.extend(m.biases.iter().flat_map(|b| [b.gate, b.up, b.down]));
            }
            Op::HeadLinear { weight, .. } => w.stacks.push(*weight),
            Op::Attention(o) => w.vectors.extend(o.sinks),
            Op::CausalConv { weight, bias, .. } => {
                w.vectors.push(*weight);
                w.vectors.extend(*bias);
            }
            Op::SelectiveScan(o) => w.vectors.extend([o.a, o.d]),
            Op::Ssd(o) => w.vectors.extend([o.a, o.d, o.dt_bias]),
            Op::Mamba3(o) => {
                w.vectors.extend([o.dt_bias, o.b_bias, o.c_bias, o.d]);
                w.vectors.extend(o.mimo_x);
            }
            Op::Cssd(o) => w.vectors.extend([o.a_log, o.d, o.dt_bias]),
            Op::DeltaRule(o) => w.vectors.extend([o.a_weight, o.dt_bias]),
            Op::RankExpand { weight, .. } | Op::RankReduce { weight, .. } => w.vectors.push(*weight),
            Op::Rope { .. }
            | Op::Glu { .. }
            | Op::Activate { .. }
            | Op::ScaleRows { .. }
            | Op::JoinHeads { .. }
            | Op::Add { .. }
            | Op::Scale { .. }
            | Op::Clamp { .. }
            | Op::SoftCap { .. }
            | Op::TakeRows { .. } => {}
        }
        w
    }
}

/// The weights that an op reads.
#[derive(Clone, Debug, Default)]
pub struct OpWeights {
    /// Matrices in their stored blocks.
    pub matrices: Vec<WeightId>,
    /// Stacks of such matrices, `[n, out, in]`.
    pub stacks: Vec<WeightId>,
    /// Small weights, which executors keep in f32.
    pub vectors: Vec<WeightId>,
}

impl OpWeights {
    fn product(&mut self, product: &Product) {
        self.matrices.push(product.weight);
        self.vectors.extend(product.bias);
    }
}
