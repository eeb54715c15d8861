//! Functions of one value, over vectors. Relative errors are a few 1e-7.

use crate::simd::Simd;

/// e^x: 0 below -87.7, infinity above 88.7; not a number stays so.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The order of operands lets NaN through.
    let x = s.min(s.splat(89.0), s.max(s.splat(-88.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts, the first with few bits: the products with n are exact.
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    // The Taylor series: on |r| < 0.35 the first term left out is 5e-9.
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.mul(p, s.pow2(n))
}

/// 2^x of a few vectors as `(scale, m)` with 2^x = scale (1 + m): so 2^x - 1 is `scale m + (scale - 1)` without
/// cancellation. For x from -126 to 127; below, the value at that end; above, anything.
///
/// Step by step over all of them: processors look only so far ahead for something that does not wait.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the arrays are registers, and walked together")]
pub(crate) fn exp2_parts<S: Simd, const V: usize>(s: S, mut x: [S::F; V]) -> ([S::F; V], [S::F; V]) {
    // A Chebyshev interpolant of (2^r - 1) / r on |r| <= 1/2, to 1e-8.
    const Q: [f32; 5] = [1.339_086_3e-3, 9.618_083e-3, 5.550_357e-2, 2.402_265e-1, 6.931_472e-1];
    let mut scale = [s.splat(0.0); V];
    let mut q = [s.splat(1.545_316_3e-4); V];
    for v in 0..V {
        x[v] = s.max(s.splat(-126.0), x[v]);
        scale[v] = s.round(x[v]);
    }
    for v in 0..V {
        x[v] = s.sub(x[v], scale[v]);
    }
    for c in Q {
        for v in 0..V {
            q[v] = s.fma(q[v], x[v], s.splat(c));
        }
    }
    for v in 0..V {
        scale[v] = s.pow2(scale[v]);
        q[v] = s.mul(q[v], x[v]);
    }
    (scale, q)
}

/// ln(1 + u) for u in 0..=1, to the last bits also where u is small.
#[inline(always)]
fn ln_1p<S: Simd>(s: S, u: S::F) -> S::F {
    // 2 artanh(v) with v = u / (2 + u); artanh(v) / v is interpolated in v^2 on 0..=1/9, to 1e-10.
    const P: [f32; 5] = [1.069_927_9e-1, 1.431_010_4e-1, 1.999_935_6e-1, 3.333_334e-1, 1.0];
    let v = s.div(u, s.add(s.splat(2.0), u));
    let square = s.mul(v, v);
    let mut p = s.splat(1.219_695_7e-1);
    for c in P {
        p = s.fma(p, square, s.splat(c));
    }
    s.mul(s.add(v, v), p)
}

/// ln(1 + e^x)
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let zero = s.splat(0.0);
    s.add(s.max(zero, x), ln_1p(s, exp(s, s.sub(zero, s.abs(x)))))
}

/// The hyperbolic tangent, to the last bits also where x is small.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    const TWICE_LOG2_E: f32 = 2.0 * std::f32::consts::LOG2_E;
    let x = s.min(s.splat(20.0), s.max(s.splat(-20.0), x));
    let ([scale], [m]) = exp2_parts(s, [s.mul(s.splat(TWICE_LOG2_E), x)]);
    // e^2x - 1
    let less_one = s.fma(scale, m, s.sub(scale, s.splat(1.0)));
    s.div(less_one, s.add(less_one, s.splat(2.0)))
}

/// Cosine and sine, for angles of a few turns at most.
#[inline(always)]
pub(crate) fn cos_sin<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(s.splat(std::f32::consts::FRAC_2_PI), x));
    // A quarter turn in two parts, the first with few bits: its products with n are exact.
    let r = s.fma(n, s.splat(-1.570_312_5), x);
    let r = s.fma(n, s.splat(-4.838_268e-4), r);
    // Chebyshev interpolants in r^2 for |r| <= pi / 4, to 1e-10.
    let square = s.mul(r, r);
    let mut sin = s.splat(2.717_345_7e-6);
    for c in [-1.983_920_2e-4, 8.333_329e-3, -1.666_666_7e-1, 1.0] {
        sin = s.fma(sin, square, s.splat(c));
    }
    let sin = s.mul(sin, r);
    let mut cos = s.splat(2.437_983e-5);
    for c in [-1.388_661_8e-3, 4.166_661_7e-2, -0.5, 1.0] {
        cos = s.fma(cos, square, s.splat(c));
    }
    // Turned on by whole quarters, -2 to 2 of them: their cosine is 1 - |q|, their sine q (2 - |q|).
    let q = s.fma(s.splat(-4.0), s.round(s.mul(s.splat(0.25), n)), n);
    let turn_cos = s.sub(s.splat(1.0), s.abs(q));
    let turn_sin = s.mul(q, s.sub(s.splat(2.0), s.abs(q)));
    let minus = s.sub(s.splat(0.0), turn_sin);
    (s.fma(cos, turn_cos, s.mul(sin, minus)), s.fma(sin, turn_cos, s.mul(cos, turn_sin)))
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// x * sigmoid(x)
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

/// The tanh approximation of the Gaussian error linear unit: x/2 (1 + tanh(u)) is x sigmoid(2u).
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    const TWICE_ROOT_2_PI: f32 = 1.595_769;
    let cubic = s.fma(s.mul(s.splat(0.044_715), x), s.mul(x, x), x);
    s.mul(x, sigmoid(s, s.mul(s.splat(TWICE_ROOT_2_PI), cubic)))
}

/// The exact Gaussian error linear unit, x/2 (1 + erf(x / sqrt 2)).
#[inline(always)]
pub(crate) fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    // erfc(z) = e^(-z^2) t P(t) with t = 1 / (1 + 0.28 z): a Chebyshev interpolant of e^(z^2) erfc(z) / t on 0..9.5, to 1e-8.
    const P: [f32; 10] = [
        -0.097_380_54,
        0.352_813_2,
        -0.340_231,
        0.326_901_9,
        0.028_089_795,
        0.112_225_11,
        0.154_153_6,
        0.146_733_47,
        0.158_771_58,
        0.157_922_8,
    ];
    let one = s.splat(1.0);
    let z = s.mul(s.abs(x), s.splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = s.div(one, s.fma(s.splat(0.28), z, one));
    let mut p = s.splat(P[0]);
    for &c in &P[1..] {
        p = s.fma(p, t, s.splat(c));
    }
    let tail = s.mul(s.mul(p, t), exp(s, s.mul(s.splat(-0.5), s.mul(x, x))));
    // x Phi(x): half the tail below zero, one minus that above.
    let half = s.mul(s.splat(0.5), tail);
    let positive = s.max(s.splat(0.0), x);
    s.sub(positive, s.mul(s.abs(x), half))
}
