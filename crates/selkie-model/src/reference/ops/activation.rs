//! Functions of one value with their derivatives, and gated pairs of values.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

use crate::{reference::Real, spec::Activation};

/// One value through an activation.
pub fn activate<T: Real>(x: T, activation: Activation) -> T {
    let (one, half) = (T::from_f64(1.0), T::from_f64(0.5));
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::GeluTanh => half * x * (one + gelu_inner(x).tanh()),
        Activation::GeluErf => x * normal_cdf(x),
        Activation::Relu => relu(x),
        Activation::ReluSquared => relu_squared(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Identity => x,
    }
}

/// `d activate(x) / dx`. Silu: `σ·(1 + x·(1 - σ))`; GELU: `Φ + x·φ`, or with `t = tanh(inner)`
/// `½·(1 + t) + ½·x·(1 - t²)·inner'`.
pub fn activate_derivative<T: Real>(x: T, activation: Activation) -> T {
    let (one, half) = (T::from_f64(1.0), T::from_f64(0.5));
    match activation {
        Activation::Silu => {
            let s = sigmoid(x);
            s * (one + x * (one - s))
        }
        Activation::GeluTanh => {
            let t = gelu_inner(x).tanh();
            let inner_derivative = T::from_f64((2.0 / PI).sqrt()) * (one + T::from_f64(3.0 * 0.044715) * x * x);
            half * (one + t) + half * x * (one - t * t) * inner_derivative
        }
        Activation::GeluErf => {
            let density = T::from_f64(1.0 / (2.0 * PI).sqrt()) * (-half * x * x).exp();
            normal_cdf(x) + x * density
        }
        Activation::Relu => relu_derivative(x),
        Activation::ReluSquared => relu_squared_derivative(x),
        Activation::Sigmoid => sigmoid_derivative(x),
        Activation::Identity => one,
    }
}

/// `activation(gate) · up`.
pub fn glu<T: Real>(gate: &[T], up: &[T], activation: Activation) -> Vec<T> {
    gate.iter().zip(up).map(|(&gate, &up)| activate(gate, activation) * up).collect()
}

/// `(dgate, dup)` of [`glu`]: `dgate = dy · up · activation'(gate)`, `dup = dy · activation(gate)`.
pub fn glu_backward<T: Real>(gate: &[T], up: &[T], activation: Activation, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let pairs = gate.iter().zip(up).zip(dy);
    pairs
        .map(|((&gate, &up), &dy)| (dy * up * activate_derivative(gate, activation), dy * activate(gate, activation)))
        .unzip()
}

/// gpt-oss's gated pair: `(up + 1) · gate · σ(alpha · gate)`, the gate clamped to at most `limit`, up to `±limit`.
pub fn clamped_swiglu<T: Real>(gate: &[T], up: &[T], alpha: T, limit: T) -> Vec<T> {
    let value = |(&gate, &up): (&T, &T)| {
        let (gate, up) = (least(gate, limit), least(-least(-up, limit), limit));
        (up + T::from_f64(1.0)) * gate * sigmoid(alpha * gate)
    };
    gate.iter().zip(up).map(value).collect()
}

/// `(dgate, dup)` of [`clamped_swiglu`]; nothing comes through where a value was clamped. With `s = σ(alpha · gate)`:
/// `dgate = dy · (up + 1) · s · (1 + alpha · gate · (1 - s))`, `dup = dy · gate · s`.
pub fn clamped_swiglu_backward<T: Real>(gate: &[T], up: &[T], alpha: T, limit: T, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let (zero, one) = (T::default(), T::from_f64(1.0));
    let gradients = |((&raw_gate, &raw_up), &dy): ((&T, &T), &T)| {
        let (gate, up) = (least(raw_gate, limit), least(-least(-raw_up, limit), limit));
        let s = sigmoid(alpha * gate);
        let dgate = dy * (up + one) * s * (one + alpha * gate * (one - s));
        let dup = dy * gate * s;
        (if raw_gate > limit { zero } else { dgate }, if raw_up > limit || -raw_up > limit { zero } else { dup })
    };
    gate.iter().zip(up).zip(dy).map(gradients).unzip()
}

/// `1 / (1 + e⁻ˣ)`.
pub fn sigmoid<T: Real>(x: T) -> T {
    let one = T::from_f64(1.0);
    one / (one + (-x).exp())
}

/// `d sigmoid(x) / dx = σ·(1 - σ)`.
pub fn sigmoid_derivative<T: Real>(x: T) -> T {
    let s = sigmoid(x);
    s * (T::from_f64(1.0) - s)
}

/// `max(x, 0)`.
pub fn relu<T: Real>(x: T) -> T {
    -least(-x, T::default())
}

/// `d relu(x) / dx`: 1 above zero, else 0.
pub fn relu_derivative<T: Real>(x: T) -> T {
    if x > T::default() { T::from_f64(1.0) } else { T::default() }
}

/// `max(x, 0)²`.
pub fn relu_squared<T: Real>(x: T) -> T {
    relu(x) * relu(x)
}

/// `d relu_squared(x) / dx = 2·max(x, 0)`.
pub fn relu_squared_derivative<T: Real>(x: T) -> T {
    T::from_f64(2.0) * relu(x)
}

/// `ln(1 + eˣ)`, as `max(x, 0) + ln(1 + e^-|x|)`, which neither overflows nor rounds small values away.
pub fn softplus<T: Real>(x: T) -> T {
    let positive = -least(-x, T::default());
    positive + least(x, -x).exp().ln_1p()
}

/// `d softplus(x) / dx = σ(x)`.
pub fn softplus_derivative<T: Real>(x: T) -> T {
    sigmoid(x)
}

fn least<T: Real>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// `sqrt(2/π) · (x + 0.044715·x³)`.
fn gelu_inner<T: Real>(x: T) -> T {
    T::from_f64((2.0 / PI).sqrt()) * (x + T::from_f64(0.044715) * x * x * x)
}

/// Φ, `½·(1 + erf(x / sqrt(2)))`.
fn normal_cdf<T: Real>(x: T) -> T {
    T::from_f64(0.5 * (1.0 + erf(x.to_f64() / SQRT_2)))
}

/// The error function to f64 precision: its power series near zero, the continued fraction of its complement beyond.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        // erf(x) = 2/√π · Σ (-1)ⁿ x^(2n+1) / (n! (2n+1)), summed as e^(-x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!, all terms positive.
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
        }
        FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else {
        // erfc(x) = e^(-x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the inside out.
        let fraction = (1..=60).rev().fold(a, |tail, k| a + f64::from(k) / 2.0 / tail);
        1.0 - (-a * a).exp() / PI.sqrt() / fraction
    };
    value.copysign(x)
}
