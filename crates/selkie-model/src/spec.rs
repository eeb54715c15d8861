//! A model as a schedule of layers.
//!
//! The engine behind knows specs only, never family names: everything in which families differ is a field here.

use crate::{
    rope::RopeSpec,
    weights::{WeightId, Weights},
};

/// A whole model: the schedule, and the weights that it names.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// What the checkpoint calls its architecture; for display.
    pub architecture: String,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Rows of the embedding, which is the width of the logits.
    pub vocab_size: usize,
    /// Positions that the model was made for, where the checkpoint tells.
    pub context: Option<usize>,
    /// The embedding, `[vocab_size, d_model]`.
    pub embedding: WeightId,
    /// Multiplies the embedding's rows.
    pub embedding_scale: f32,
    /// The schedule.
    pub layers: Vec<Layer>,
    /// Norm before the head.
    pub final_norm: Norm,
    /// Products to logits: the embedding itself where tied.
    pub head: Linear,
    /// Multiplies the logits.
    pub logit_scale: f32,
    /// `c` in `c · tanh(logits / c)`, after the scale.
    pub logit_softcap: Option<f32>,
    /// Rotary embeddings that layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// Where the weights are.
    pub weights: Weights,
}

impl ModelSpec {
    /// Bytes of weights that one token reads: of an embedding that is not the head one row, of experts those used.
    pub fn bytes_per_token(&self) -> u64 {
        let mut bytes: u64 = self.weights.iter().map(|(_, w)| w.bytes()).sum();
        if self.embedding != self.head.weight {
            bytes -= self.weights.get(self.embedding).bytes();
        }
        for layer in &self.layers {
            if let Some(Block { inner: FeedForward::Mixture(m), .. }) = &layer.feed_forward {
                let all: u64 = [m.gate, m.up, m.down].iter().map(|id| self.weights.get(*id).bytes()).sum();
                bytes -= all - all * m.n_used as u64 / m.n_experts as u64;
            }
        }
        bytes
    }
}

/// A layer: a mixer over positions, a feed-forward part over channels, or one of the two.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Mixes positions.
    pub mixer: Option<Block<Mixer>>,
    /// Mixes channels.
    pub feed_forward: Option<Block<FeedForward>>,
}

/// A residual block: `x + residual_scale · post_norm(inner(pre_norm(x)))`.
#[derive(Clone, Debug)]
pub struct Block<T> {
    /// Norm of the block's input.
    pub pre_norm: Option<Norm>,
    /// What the block does.
    pub inner: T,
    /// Norm of its result.
    pub post_norm: Option<Norm>,
    /// Multiplies what is added to the stream.
    pub residual_scale: f32,
}

/// Root-mean-square norm: `x / sqrt(mean(x²) + eps) · weight`.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// `[width]`; as long as the rows, or as long as the groups where rows are normed in groups (a head each).
    pub weight: WeightId,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x · weightᵀ + bias`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: WeightId,
    /// `[out]`.
    pub bias: Option<WeightId>,
}

/// What mixes positions.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Softmax attention with a cache.
    Attention(Attention),
}

/// Causal softmax attention with grouped heads: query head `i` reads key head `i / (n_heads / n_kv_heads)`.
#[derive(Clone, Debug)]
pub struct Attention {
    /// To queries, `[n_heads · head_dim, d_model]`.
    pub q: Linear,
    /// To keys, `[n_kv_heads · head_dim, d_model]`.
    pub k: Linear,
    /// To values, `[n_kv_heads · head_dim, d_model]`.
    pub v: Linear,
    /// Back to the stream, `[d_model, n_heads · head_dim]`.
    pub o: Linear,
    /// Norm of the queries before the rotation: per head, or over all heads where the weight is that long.
    pub q_norm: Option<Norm>,
    /// Norm of the keys before the rotation.
    pub k_norm: Option<Norm>,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Index into [`ModelSpec::ropes`]; `None` for attention without positions.
    pub rope: Option<usize>,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c` in `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, itself included; all before it where `None`.
    pub window: Option<usize>,
}

/// What mixes channels.
#[derive(Clone, Debug)]
pub enum FeedForward {
    /// One gated block for every row.
    Dense(Dense),
    /// A few of many gated blocks, chosen for each row.
    Mixture(Mixture),
}

/// `down(activation(gate(x)) · up(x))`.
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// `[d_ff, d_model]`.
    pub gate: Linear,
    /// `[d_ff, d_model]`.
    pub up: Linear,
    /// `[d_model, d_ff]`.
    pub down: Linear,
    /// Of the gate.
    pub activation: Activation,
}

/// A mixture of experts, each a gated block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// To one score an expert, `[n_experts, d_model]`.
    pub router: WeightId,
    /// `[n_experts, d_ff, d_model]`.
    pub gate: WeightId,
    /// `[n_experts, d_ff, d_model]`.
    pub up: WeightId,
    /// `[n_experts, d_model, d_ff]`.
    pub down: WeightId,
    /// Of the gates.
    pub activation: Activation,
    /// How many experts there are.
    pub n_experts: usize,
    /// How many of them a row uses.
    pub n_used: usize,
    /// Width of an expert.
    pub d_ff: usize,
    /// How scores become weights.
    pub routing: Routing,
}

/// How an expert's score becomes its weight. Ties go to the lower index; experts are summed in ascending index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Softmax over all experts, the largest chosen, their weights made to sum to one (Mixtral).
    SoftmaxRenormalised,
}

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
    /// `max(x, 0)²` (Nemotron).
    ReluSquared,
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `x`: a gate that is a plain factor (LFM2).
    Identity,
}

impl Activation {
    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::GeluErf => "gelu_erf",
            Activation::ReluSquared => "relu_squared",
            Activation::Sigmoid => "sigmoid",
            Activation::Identity => "identity",
        }
    }
}
