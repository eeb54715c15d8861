//! What mixes channels: dense blocks and mixtures of experts.

use super::Linear;
use crate::weights::WeightId;

/// What mixes channels.
#[derive(Clone, Debug)]
pub enum FeedForward {
    /// One block for every row.
    Dense(Dense),
    /// A few of many blocks, chosen for each row.
    Mixture(Mixture),
    /// A mixture and a block for every row, summed.
    Shared(Box<SharedMixture>),
}

impl FeedForward {
    /// The mixture in it, if any.
    pub fn mixture(&self) -> Option<&Mixture> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::Mixture(mixture) => Some(mixture),
            FeedForward::Shared(shared) => Some(&shared.mixture),
        }
    }
}

/// `down(activation(gate_scale · gate(x)) · up(x))`, or `down(activation(up(x)))` without a gate.
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// `[d_ff, d_model]`.
    pub gate: Option<Linear>,
    /// Multiplies the gate.
    pub gate_scale: f32,
    /// `[d_ff, d_model]`.
    pub up: Linear,
    /// `[d_model, d_ff]`.
    pub down: Linear,
    /// Of the gate, or of `up` where there is none.
    pub activation: Activation,
}

/// A mixture beside a block that every row goes through.
#[derive(Clone, Debug)]
pub struct SharedMixture {
    /// The chosen experts.
    pub mixture: Mixture,
    /// The block that all rows share.
    pub shared: Dense,
    /// `[1, d_model]`: the shared block's result is multiplied by its sigmoid (Qwen2-MoE).
    pub gate: Option<Linear>,
}

/// A mixture of experts, each a block of two or three products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// To one score an expert, `[n_experts, d_model]`.
    pub router: WeightId,
    /// Added to the scores, `[n_experts]` (gpt-oss).
    pub router_bias: Option<WeightId>,
    /// `[n_experts, d_ff, d_model]`; none where experts have no gate (Nemotron-H).
    pub gate: Option<WeightId>,
    /// `[n_experts, d_ff, d_model]`.
    pub up: WeightId,
    /// `[n_experts, d_model, d_ff]`.
    pub down: WeightId,
    /// Biases of the experts' products: `gate` and `up` `[n_experts, d_ff]`, `down` `[n_experts, d_model]` (gpt-oss).
    pub biases: Option<ExpertBiases>,
    /// What happens between the products.
    pub gating: Gating,
    /// How many experts there are.
    pub n_experts: usize,
    /// How many of them a row uses.
    pub n_used: usize,
    /// Width of an expert.
    pub d_ff: usize,
    /// How scores become weights.
    pub routing: Routing,
}

/// The biases of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertBiases {
    /// `[n_experts, d_ff]`.
    pub gate: WeightId,
    /// `[n_experts, d_ff]`.
    pub up: WeightId,
    /// `[n_experts, d_model]`.
    pub down: WeightId,
}

/// What happens between an expert's products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `activation(gate) · up`, or `activation(up)` without a gate.
    Plain(Activation),
    /// `g · σ(alpha · g) · (u + 1)` with `g = min(gate, limit)` and `u` held within `±limit` (gpt-oss).
    ClampedSwiglu {
        /// Steepness of the sigmoid.
        alpha: f32,
        /// Where gate and up are cut.
        limit: f32,
    },
}

/// How an expert's score becomes its weight. Ties go to the lower index; experts are summed in ascending index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// What makes scores of the router's products.
    pub score: Score,
    /// Added to the scores for choosing only, `[n_experts]` (DeepSeek-V3).
    pub choice_bias: Option<WeightId>,
    /// Experts are chosen among those of the best groups.
    pub groups: Option<Groups>,
    /// Whether the chosen weights are made to sum to one.
    pub renormalise: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

impl Routing {
    /// Softmax over all experts, the largest chosen.
    pub fn softmax(renormalise: bool) -> Self {
        Self { score: Score::Softmax, choice_bias: None, groups: None, renormalise, scale: 1.0 }
    }
}

/// What makes scores of the router's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
    /// The products themselves choose; the weights are a softmax over the chosen.
    SoftmaxOfChosen,
}

/// Groups of neighbouring experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many groups.
    pub n_groups: usize,
    /// How many of them experts are chosen from.
    pub n_used: usize,
    /// What makes a group good.
    pub by: GroupScore,
}

/// What makes a group of experts good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// Its best expert's score.
    Best,
    /// The sum of its two best.
    BestTwo,
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
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `σ(x)`.
    Sigmoid,
    /// `x`.
    Identity,
}

impl Activation {
    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::GeluErf => "gelu_erf",
            Activation::Relu => "relu",
            Activation::ReluSquared => "relu_squared",
            Activation::Sigmoid => "sigmoid",
            Activation::Identity => "identity",
        }
    }
}
