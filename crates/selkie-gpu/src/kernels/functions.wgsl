// Functions of one value; `c` is the constant of those that have one. None relies on infinities.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn f_sigmoid(x: f32, c: f32) -> f32 {
    return sigmoid(x);
}

fn f_silu(x: f32, c: f32) -> f32 {
    return x * sigmoid(x);
}

fn f_tanh(x: f32, c: f32) -> f32 {
    // 1 - 2 / (e^2x + 1), and a series where that cancels.
    let a = min(abs(x), 15.0);
    let large = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    let s = a * a;
    let small = a * (1.0 + s * (-1.0 / 3.0 + s * (2.0 / 15.0 - s * (17.0 / 315.0))));
    return sign(x) * select(large, small, a < 0.15);
}

fn f_gelu_tanh(x: f32, c: f32) -> f32 {
    return 0.5 * x * (1.0 + f_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x), 0.0));
}

// The error function by Abramowitz and Stegun 7.1.26 has 1.5e-7 of error, as much as f32 itself.
fn f_gelu_erf(x: f32, c: f32) -> f32 {
    let z = min(abs(x) * 0.7071067811865476, 9.0);
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * exp(-z * z);
    // Half of the tail on the negative side, one less that on the positive.
    return x * select(0.5 * tail, 1.0 - 0.5 * tail, x >= 0.0);
}

fn f_relu(x: f32, c: f32) -> f32 {
    return max(x, 0.0);
}

fn f_relu_squared(x: f32, c: f32) -> f32 {
    let r = max(x, 0.0);
    return r * r;
}

fn f_identity(x: f32, c: f32) -> f32 {
    return x;
}

fn f_clamp(x: f32, c: f32) -> f32 {
    return clamp(x, -c, c);
}

fn f_soft_cap(x: f32, c: f32) -> f32 {
    return c * f_tanh(x / c, 0.0);
}

fn softplus(x: f32) -> f32 {
    // ln(1 + e^x); ln(1 + e) as 2 artanh(e / (2 + e)) by its series, since `log` is only so exact near 1.
    let e = exp(-abs(x));
    let s = e / (2.0 + e);
    let t = s * s;
    let series = 1.0 + t * (1.0 / 3.0 + t * (1.0 / 5.0 + t * (1.0 / 7.0 + t * (1.0 / 9.0 + t * (1.0 / 11.0 + t / 13.0)))));
    return max(x, 0.0) + 2.0 * s * series;
}
