//! The operations that a plan may name.

use super::{BufferId, SlotId};
use crate::{
    spec::{Activation, Mixture},
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
    /// `out = x / sqrt(mean(x²) + eps) · weight`, over groups as long as the weight.
    RmsNorm { x: BufferId, weight: WeightId, eps: f32, out: BufferId },
    /// `out = x · weightᵀ + bias`: `[rows, in]` to `[rows, out]`.
    Linear { x: BufferId, product: Product },
    /// Turns the first channels of every head by its position's angles.
    Rope { x: BufferId, rope: usize, head_dim: usize, out: BufferId },
    /// Appends k and v to the cache, then `out = softmax(scale · q · Kᵀ) · V` over the positions up to each row's own.
    Attention(AttentionOp),
    /// `out = activation(gate) · up`.
    Glu { gate: BufferId, up: BufferId, activation: Activation, out: BufferId },
    /// Each row through its chosen experts: `out = Σ weight · down(activation(gate(x)) · up(x))`.
    Mixture { x: BufferId, mixture: Mixture, out: BufferId },
    /// `out = x + scale · y`.
    Add { x: BufferId, y: BufferId, scale: f32, out: BufferId },
    /// `out = scale · x`.
    Scale { x: BufferId, scale: f32, out: BufferId },
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
    /// `[rows, n_kv_heads · head_dim]`.
    pub v: BufferId,
    /// Where earlier keys and values are.
    pub cache: SlotId,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, itself included.
    pub window: Option<usize>,
    /// `[rows, n_heads · head_dim]`.
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
            Op::Glu { .. } => "glu",
            Op::Mixture { .. } => "mixture",
            Op::Add { .. } => "add",
            Op::Scale { .. } => "scale",
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
            | Op::SoftCap { x, .. }
            | Op::TakeRows { x, .. }
            | Op::Linears { x, .. }
            | Op::LinearGlu { x, .. } => vec![*x],
            Op::Attention(a) => vec![a.q, a.k, a.v],
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
            Op::Embed { out, .. }
            | Op::RmsNorm { out, .. }
            | Op::Rope { out, .. }
            | Op::Glu { out, .. }
            | Op::Mixture { out, .. }
            | Op::Add { out, .. }
            | Op::Scale { out, .. }
            | Op::SoftCap { out, .. }
            | Op::TakeRows { out, .. }
            | Op::LinearGlu { out, .. }
            | Op::LinearAdd { out, .. } => vec![*out],
        }
    }
}
