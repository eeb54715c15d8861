//! A model as a schedule of layers.
//!
//! The engine behind knows specs only, never family names: everything in which families differ is a field here.

mod display;
mod feed_forward;
mod mixer;
mod shape;

pub use feed_forward::{
    Activation, Dense, ExpertBiases, FeedForward, Gating, GroupScore, Groups, Mixture, Routing, Score, SharedMixture,
};
pub use mixer::{
    Attention, Branch, Conv, Cssd, DeltaNet, LatentAttention, Mamba1, Mamba2, Mamba3, Mimo, Mixer, SharedBlock,
    ShortConv,
};
pub use shape::{CssdShape, DecayActivation, DeltaShape, InputRule, Mamba3Shape, SsdShape};

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
    /// Whether any layer attends to positions, and so keeps all of them.
    pub fn has_attention(&self) -> bool {
        fn attends(mixer: &Mixer) -> bool {
            match mixer {
                Mixer::Attention(_) | Mixer::LatentAttention(_) => true,
                Mixer::Parallel(branches) => branches.iter().any(|branch| attends(&branch.mixer)),
                _ => false,
            }
        }
        self.layers.iter().any(|l| l.shared.is_some() || l.mixer.as_ref().is_some_and(|block| attends(&block.inner)))
    }

    /// Bytes of weights that one token reads: of an embedding that is not the head one row, of experts those used.
    pub fn bytes_per_token(&self) -> u64 {
        let mut bytes: u64 = self.weights.iter().map(|(_, w)| w.bytes()).sum();
        if self.embedding != self.head.weight {
            bytes -= self.weights.get(self.embedding).bytes();
        }
        for layer in &self.layers {
            if let Some(m) = layer.feed_forward.as_ref().and_then(|block| block.inner.mixture()) {
                let stacks = m.gate.iter().chain([&m.up, &m.down]);
                let all: u64 = stacks.map(|id| self.weights.get(*id).bytes()).sum();
                bytes -= all - all * m.n_used as u64 / m.n_experts as u64;
            }
        }
        bytes
    }
}

/// A layer: a mixer over positions, a feed-forward part over channels, or one of the two.
#[derive(Clone, Debug)]
pub struct Layer {
    /// A block that other layers share, whose result is added to what the mixer sees.
    pub shared: Option<Box<SharedBlock>>,
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

/// Root-mean-square norm over groups of a row's values: `x / sqrt(mean(x²) + eps) · weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// As long as a row, or as a group, which then all groups share; none where nothing is multiplied.
    pub weight: Option<WeightId>,
    /// Values that are normed together: a row's width, or less (a head, say).
    pub group: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x · weightᵀ + bias`, with a correction where there is one.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: WeightId,
    /// `[out]`.
    pub bias: Option<WeightId>,
    /// Added to the product.
    pub low_rank: Option<LowRank>,
}

/// A correction of low rank: `x · downᵀ · upᵀ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowRank {
    /// `[rank, in]`.
    pub down: WeightId,
    /// `[out, rank]`.
    pub up: WeightId,
}
