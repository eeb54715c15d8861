//! Ops on each value by itself.

use crate::{reference::Real, spec::Activation};

/// `x + scale · y`.
pub fn add<T: Real>(x: &[T], y: &[T], scale: T) -> Vec<T> {
    x.iter().zip(y).map(|(&x, &y)| x + scale * y).collect()
}

/// `scale · x`.
pub fn scale<T: Real>(x: &[T], scale: T) -> Vec<T> {
    x.iter().map(|&x| scale * x).collect()
}

/// `cap · tanh(x / cap)`.
pub fn soft_cap<T: Real>(x: &[T], cap: T) -> Vec<T> {
    x.iter().map(|&x| cap * (x / cap).tanh()).collect()
}

/// `activation(gate) · up`.
pub fn glu<T: Real>(gate: &[T], up: &[T], activation: Activation) -> Vec<T> {
    gate.iter().zip(up).map(|(&gate, &up)| activate(gate, activation) * up).collect()
}

/// One value through an activation.
pub fn activate<T: Real>(x: T, activation: Activation) -> T {
    let one = T::from_f64(1.0);
    let half = T::from_f64(0.5);
    match activation {
        Activation::Silu => x / (one + (-x).exp()),
        Activation::GeluTanh => {
            let inner = T::from_f64((2.0 / std::f64::consts::PI).sqrt()) * (x + T::from_f64(0.044715) * x * x * x);
            half * x * (one + inner.tanh())
        }
        Activation::GeluErf => half * x * (one + T::from_f64(erf(x.to_f64() / std::f64::consts::SQRT_2))),
    }
}

/// The error function to f64 precision: its power series near zero, the continued fraction of its complement beyond.
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        // erf(x) = 2/√π · Σ (-1)ⁿ x^(2n+1) / (n! (2n+1)), summed as e^(-x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!, all terms positive.
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-a * a).exp() * sum
    } else {
        // erfc(x) = e^(-x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the inside out.
        let fraction = (1..=60).rev().fold(a, |tail, k| a + f64::from(k) / 2.0 / tail);
        1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    value.copysign(x)
}
