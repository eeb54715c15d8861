//! Mamba-1's selective scan.

use super::{softplus, softplus_derivative};
use crate::{reference::Real, spec::InputRule};

impl InputRule {
    /// What `b · x` is multiplied by.
    fn factor<T: Real>(self, dt: T, a: T) -> T {
        match self {
            InputRule::Euler => dt,
            InputRule::ZeroOrderHold => (dt * a).exp_m1() / a,
        }
    }

    /// The derivatives of [`factor`](Self::factor) by `dt` and by `a`.
    fn factor_derivatives<T: Real>(self, dt: T, a: T) -> (T, T) {
        match self {
            InputRule::Euler => (T::from_f64(1.0), T::default()),
            InputRule::ZeroOrderHold => {
                let decay = (dt * a).exp();
                (decay, (dt * decay - self.factor(dt, a)) / a)
            }
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

/// What [`selective_scan_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanGradients<T> {
    /// `[rows, channels]`.
    pub x: Vec<T>,
    /// `[rows, channels]`, of the raw values.
    pub dt: Vec<T>,
    /// `[rows, d_state]`.
    pub b: Vec<T>,
    /// `[rows, d_state]`.
    pub c: Vec<T>,
    /// `[channels, d_state]`.
    pub a: Vec<T>,
    /// `[channels]`.
    pub d: Vec<T>,
    /// `[channels, d_state]`: of the state before the first row.
    pub state: Vec<T>,
}

/// The gradients of [`selective_scan`] from those of its result, `dy` `[rows, channels]`, and of the state after it,
/// `dstate`; `state` is the one before it.
///
/// From the last row to the first, with `dh` what comes back from the rows behind and `f` the factor of the input:
/// `dh += dy·c`, `dc = Σ dy·h`, `dx = Σ dh·f·b + d·dy`, `db = Σ dh·f·x`, `dΔ = Σ dh·(a·e^{Δa}·h' + ∂f/∂Δ·b·x)`,
/// `da = dh·(Δ·e^{Δa}·h' + ∂f/∂a·b·x)` with h' the state before the row, and for the row before `dh = e^{Δa}·dh`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn selective_scan_backward<T: Real>(
    x: &[T],
    dt: &[T],
    b: &[T],
    c: &[T],
    a: &[T],
    d: &[T],
    input: InputRule,
    state: &[T],
    dy: &[T],
    dstate: &[T],
) -> ScanGradients<T> {
    let channels = d.len();
    let d_state = a.len() / channels;
    let rows = x.len() / channels;
    // The states before each row, and after the last.
    let mut states = vec![state.to_vec()];
    for row in 0..rows {
        let mut next = states[row].clone();
        let (wide, narrow) = (row * channels..(row + 1) * channels, row * d_state..(row + 1) * d_state);
        let (b, c) = (&b[narrow.clone()], &c[narrow]);
        selective_scan(&x[wide.clone()], &dt[wide], b, c, a, d, input, &mut next);
        states.push(next);
    }

    let zeros = |like: &[T]| vec![T::default(); like.len()];
    let mut g = ScanGradients {
        x: zeros(x),
        dt: zeros(dt),
        b: zeros(b),
        c: zeros(c),
        a: zeros(a),
        d: zeros(d),
        state: dstate.to_vec(),
    };
    for row in (0..rows).rev() {
        for (channel, &skip) in d.iter().enumerate() {
            let at = row * channels + channel;
            let (x, size, dy) = (x[at], softplus(dt[at]), dy[at]);
            let mut dsize = T::default();
            g.x[at] += skip * dy;
            g.d[channel] += dy * x;
            for n in 0..d_state {
                let (here, own) = (row * d_state + n, channel * d_state + n);
                let (a, b) = (a[own], b[here]);
                let (decay, factor) = ((size * a).exp(), input.factor(size, a));
                let (factor_by_size, factor_by_a) = input.factor_derivatives(size, a);
                let (before, after) = (states[row][own], states[row + 1][own]);
                let dh = g.state[own] + dy * c[here];
                g.c[here] += dy * after;
                g.x[at] += dh * factor * b;
                g.b[here] += dh * factor * x;
                dsize += dh * (a * decay * before + factor_by_size * b * x);
                g.a[own] += dh * (size * decay * before + factor_by_a * b * x);
                g.state[own] = decay * dh;
            }
            g.dt[at] = dsize * softplus_derivative(dt[at]);
        }
    }
    g
}
