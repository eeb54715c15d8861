//! The sizes and constants of the recurrences, which ops carry with them.

use crate::rope::Pairing;

/// How an input enters a state that decays by `exp(dt · a)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRule {
    /// `dt · b · x`: Mamba's own code.
    Euler,
    /// `(exp(dt · a) - 1) / a · b · x`: as if the input were held for `dt` (MBJS).
    ZeroOrderHold,
}

/// The sizes and constants of Mamba-2's recurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdShape {
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; head `h` belongs to group `h · n_groups / n_heads`.
    pub n_groups: usize,
    /// States of one channel.
    pub d_state: usize,
    /// Least step size.
    pub dt_min: f32,
    /// Largest step size; may be infinite.
    pub dt_max: f32,
    /// Whether the input is multiplied by the step size (MBJS's is not).
    pub scale_input: bool,
}

impl SsdShape {
    /// Width of the inputs: all heads.
    pub fn d_inner(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of the convolved row: inputs, B and C.
    pub fn width(&self) -> usize {
        self.d_inner() + 2 * self.n_groups * self.d_state
    }
}

/// The sizes and constants of Mamba-3's recurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mamba3Shape {
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; head `h` belongs to group `h · n_groups / n_heads`.
    pub n_groups: usize,
    /// States of one channel.
    pub d_state: usize,
    /// Keys, queries and inputs of a head at one row.
    pub rank: usize,
    /// Pairs of states that turn; at most half of the states.
    pub n_angles: usize,
    /// Which states are pairs: `2i` with `2i + 1`, or `i` with `i + d_state / 2`.
    pub pairing: Pairing,
    /// How the raw decay becomes positive.
    pub a_activation: DecayActivation,
    /// Least rate of decay.
    pub a_floor: f32,
}

impl Mamba3Shape {
    /// Width of the inputs: all heads.
    pub fn d_inner(&self) -> usize {
        self.n_heads * self.head_dim
    }
}

/// What makes a raw rate of decay positive. A checkpoint does not say with which it was trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayActivation {
    /// `ln(1 + eˣ)`.
    Softplus,
    /// `1 + x` from 0 on, `1 / (1 - x)` below.
    HeavyTail,
}

/// The sizes of the complex recurrence of MBJS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CssdShape {
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C; head `h` belongs to group `h · n_groups / n_heads`.
    pub n_groups: usize,
    /// Complex states of one channel.
    pub d_state: usize,
}

impl CssdShape {
    /// Width of the inputs: all heads.
    pub fn d_inner(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of the convolved row: inputs, B and C, the latter of real and imaginary parts.
    pub fn width(&self) -> usize {
        self.d_inner() + 4 * self.n_groups * self.d_state
    }
}

/// The sizes of the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; head `h` reads with head `h · n_k_heads / n_v_heads` of the queries and keys.
    pub n_v_heads: usize,
    /// Width of a query or key head.
    pub k_dim: usize,
    /// Width of a value head.
    pub v_dim: usize,
}

impl DeltaShape {
    /// Width of the convolved row: queries, keys and values.
    pub fn width(&self) -> usize {
        2 * self.n_k_heads * self.k_dim + self.n_v_heads * self.v_dim
    }

    /// Width of the result: all value heads.
    pub fn d_inner(&self) -> usize {
        self.n_v_heads * self.v_dim
    }
}
