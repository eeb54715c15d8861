//! Mamba-1's selective scan.

use super::softplus;
use crate::reference::Real;

/// How an input enters a state that decays by `exp(dt · a)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRule {
    /// `dt · b · x`: Mamba's own code.
    Euler,
    /// `(exp(dt · a) - 1) / a · b · x`: as if the input were held for `dt` (MBJS).
    ZeroOrderHold,
}

impl InputRule {
    /// What `b · x` is multiplied by.
    fn factor<T: Real>(self, dt: T, a: T) -> T {
        match self {
            InputRule::Euler => dt,
            InputRule::ZeroOrderHold => (dt * a).exp_m1() / a,
        }
    }
}

/// One state a channel and `n`: `h = exp(Δ·a) · h + factor · b · x`, `y = Σ_n c · h + d · x`, with `Δ = softplus(dt)`
/// and the factor that `input` says.
///
/// `x` and `dt` (raw, its bias added) `[rows, channels]`, `b` and `c` `[rows, d_state]`, `a` (negative)
/// `[channels, d_state]`, `d` `[channels]`, `state` `[channels, d_state]`, in and out; gives `[rows, channels]`.
#[expect(clippy::too_many_arguments, reason = "an op's operands and its state")]
pub fn selective_scan<T: Real>(
    x: &[T],
    dt: &[T],
    b: &[T],
    c: &[T],
    a: &[T],
    d: &[T],
    input: InputRule,
    state: &mut [T],
) -> Vec<T> {
    let channels = d.len();
    let d_state = a.len() / channels;
    let mut y = Vec::with_capacity(x.len());
    for (row, (x, dt)) in x.chunks_exact(channels).zip(dt.chunks_exact(channels)).enumerate() {
        let (b, c) = (&b[row * d_state..][..d_state], &c[row * d_state..][..d_state]);
        for channel in 0..channels {
            let (x, dt) = (x[channel], softplus(dt[channel]));
            let mut sum = d[channel] * x;
            for n in 0..d_state {
                let a = a[channel * d_state + n];
                let h = &mut state[channel * d_state + n];
                *h = (dt * a).exp() * *h + input.factor(dt, a) * b[n] * x;
                sum += c[n] * *h;
            }
            y.push(sum);
        }
    }
    y
}
