//! Every op by its definition, in plain loops, and its gradient beside it. Rows lie one after another: `[rows, width]`.
//!
//! `op_backward` takes what `op` took, as far as it matters, and the gradient `dy` of a loss by the op's result; it gives
//! the gradients by the op's inputs, each in its input's shape.
//!
//! A recurrent op takes the rows of one sequence and the state before them, and leaves the state after them in its place.
//! Its `op_backward` takes the state before and the gradient of the one after, and gives that of the one before too;
//! its `op_chunked` gives the same result by products of matrices, as executors do it that have many rows at once.

mod activation;
mod attention;
mod chunk;
mod conv;
mod cssd;
mod delta_rule;
mod elementwise;
mod heads;
mod linear;
mod loss;
mod mamba3;
mod mamba3_backward;
mod mixture;
mod norm;
mod rope;
mod routing;
mod selective_scan;
mod ssd;

pub use activation::{
    activate, activate_derivative, clamped_swiglu, clamped_swiglu_backward, glu, glu_backward, relu, relu_derivative,
    relu_squared, relu_squared_derivative, sigmoid, sigmoid_derivative, softplus, softplus_derivative,
};
pub use attention::{AttentionGradients, AttentionShape, attention, attention_backward, attention_with_sinks};
pub use conv::{ConvGradients, causal_conv, causal_conv_backward};
pub use cssd::{CssdGradients, cssd, cssd_backward, cssd_chunked};
pub use delta_rule::{DeltaGradients, delta_rule, delta_rule_backward, delta_rule_chunked};
pub use elementwise::{add, add_backward, clamp, clamp_backward, scale, scale_backward, soft_cap, soft_cap_backward};
pub use heads::{
    head_linear, head_linear_backward, join_heads, join_heads_backward, rank_expand, rank_expand_backward, rank_reduce,
    rank_reduce_backward, scale_rows, scale_rows_backward,
};
pub use linear::{
    embed, embed_backward, linear, linear_backward, linear_backward_weight, take_rows, take_rows_backward,
};
pub use loss::{LossTerms, cross_entropy, cross_entropy_backward};
pub use mamba3::{Mamba3Params, Mamba3State, Mamba3Values, mamba3, mamba3_chunked};
pub use mamba3_backward::{Mamba3Gradients, mamba3_backward};
pub use mixture::{ExpertGradients, MixtureGradients, mixture, mixture_backward};
pub use norm::{layer_norm, layer_norm_backward, rms_norm, rms_norm_backward, rms_norm_plain, rms_norm_plain_backward};
pub use rope::{rope, rope_backward};
pub use routing::{route, route_backward};
pub use selective_scan::{ScanGradients, selective_scan, selective_scan_backward};
pub use ssd::{SsdGradients, ssd, ssd_backward, ssd_chunked};

pub use crate::spec::{CssdShape, DecayActivation, DeltaShape, InputRule, Mamba3Shape, SsdShape};

use super::Real;

/// f32 values as `T`.
pub fn widen<T: Real>(values: &[f32]) -> Vec<T> {
    values.iter().map(|&v| T::from_f32(v)).collect()
}
