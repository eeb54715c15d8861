//! The numbers that the reference computes with.

use std::{
    fmt::Debug,
    iter::Sum,
    ops::{Add, AddAssign, Div, Mul, Neg, Sub},
};

/// A floating-point number: f32 or f64.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
    + 'static
{
    /// The nearest to an f64.
    fn from_f64(v: f64) -> Self;
    /// As an f64, exactly.
    fn to_f64(self) -> f64;
    /// e to this power.
    fn exp(self) -> Self;
    /// `e^self - 1`, exact near 0.
    fn exp_m1(self) -> Self;
    /// Sine of an angle in radians.
    fn sin(self) -> Self;
    /// Cosine of an angle in radians.
    fn cos(self) -> Self;
    /// The largest whole number that is not larger.
    fn floor(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// `ln(1 + self)`, exact near 0.
    fn ln_1p(self) -> Self;

    /// The nearest to an f32.
    fn from_f32(v: f32) -> Self {
        Self::from_f64(f64::from(v))
    }

    /// The nearest to a count.
    fn from_usize(v: usize) -> Self {
        Self::from_f64(v as f64)
    }
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            fn from_f64(v: f64) -> Self {
                v as $t
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn exp(self) -> Self {
                <$t>::exp(self)
            }
            fn exp_m1(self) -> Self {
                <$t>::exp_m1(self)
            }
            fn sin(self) -> Self {
                <$t>::sin(self)
            }
            fn cos(self) -> Self {
                <$t>::cos(self)
            }
            fn floor(self) -> Self {
                <$t>::floor(self)
            }
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            fn tanh(self) -> Self {
                <$t>::tanh(self)
            }
            fn ln(self) -> Self {
                <$t>::ln(self)
            }
            fn ln_1p(self) -> Self {
                <$t>::ln_1p(self)
            }
        }
    };
}

real!(f32);
real!(f64);
