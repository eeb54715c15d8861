//! The short convolution in front of a recurrence.

use super::{activate, activate_derivative};
use crate::{reference::Real, spec::Activation};

/// Depthwise causal convolution of `x` `[rows, channels]`: `y[t, c] = bias[c] + Σ_k weight[c, k] · x[t + k - (taps - 1), c]`,
/// through SiLU if `silu`. The last of the `taps` of `weight` `[channels, taps]` meets the row itself.
///
/// `window` `[taps - 1, channels]` holds the rows before `x`, oldest first, and then those before what comes next.
pub fn causal_conv<T: Real>(
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    silu: bool,
    window: &mut Vec<T>,
    channels: usize,
    taps: usize,
) -> Vec<T> {
    let mut rows = std::mem::take(window);
    rows.extend_from_slice(x);
    *window = rows[x.len()..].to_vec();
    let mut y = convolve(&rows, weight, bias, channels, taps);
    if silu {
        y.iter_mut().for_each(|y| *y = activate(*y, Activation::Silu));
    }
    y
}

/// What [`causal_conv_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvGradients<T> {
    /// `[rows, channels]`.
    pub x: Vec<T>,
    /// `[channels, taps]`.
    pub weight: Vec<T>,
    /// `[channels]`, for a bias that is there or could be.
    pub bias: Vec<T>,
    /// `[taps - 1, channels]`: of the window before `x`.
    pub window: Vec<T>,
}

/// The gradients of [`causal_conv`] from those of its result, `dy` `[rows, channels]`, and of the window after it,
/// `dwindow`; `window` is the one before it.
///
/// Before SiLU: `dx[t, c] = Σ_k weight[c, k] · dy[t + (taps - 1) - k, c]`, `dweight[c, k] = Σ_t dy[t, c] · x[t + k - (taps - 1), c]`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn causal_conv_backward<T: Real>(
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    silu: bool,
    window: &[T],
    channels: usize,
    taps: usize,
    dy: &[T],
    dwindow: &[T],
) -> ConvGradients<T> {
    let rows = [window, x].concat();
    let mut dy = dy.to_vec();
    if silu {
        let before = convolve(&rows, weight, bias, channels, taps);
        dy.iter_mut().zip(before).for_each(|(dy, v)| *dy = *dy * activate_derivative(v, Activation::Silu));
    }
    let mut drows = vec![T::default(); rows.len()];
    drows[x.len()..].copy_from_slice(dwindow);
    let (mut dweight, mut dbias) = (vec![T::default(); weight.len()], vec![T::default(); channels]);
    for (t, dy) in dy.chunks_exact(channels).enumerate() {
        for (c, &dy) in dy.iter().enumerate() {
            dbias[c] += dy;
            for k in 0..taps {
                let at = (t + k) * channels + c;
                drows[at] += weight[c * taps + k] * dy;
                dweight[c * taps + k] += rows[at] * dy;
            }
        }
    }
    let dx = drows.split_off(window.len());
    ConvGradients { x: dx, weight: dweight, bias: dbias, window: drows }
}

/// The sums before SiLU, of `rows` which begin with the window.
fn convolve<T: Real>(rows: &[T], weight: &[T], bias: Option<&[T]>, channels: usize, taps: usize) -> Vec<T> {
    let outputs = rows.len() / channels - (taps - 1);
    let mut y = Vec::with_capacity(outputs * channels);
    for t in 0..outputs {
        for c in 0..channels {
            let sum: T = (0..taps).map(|k| weight[c * taps + k] * rows[(t + k) * channels + c]).sum();
            y.push(sum + bias.map_or(T::default(), |b| b[c]));
        }
    }
    y
}
