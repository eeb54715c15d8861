//! Sums and scales of each value by itself.

use crate::reference::Real;

/// `x + scale · y`.
pub fn add<T: Real>(x: &[T], y: &[T], scale: T) -> Vec<T> {
    x.iter().zip(y).map(|(&x, &y)| x + scale * y).collect()
}

/// `(dx, dy)` of [`add`] from the gradient `dsum` of the sum: `dx = dsum`, `dy = scale · dsum`.
pub fn add_backward<T: Real>(scale: T, dsum: &[T]) -> (Vec<T>, Vec<T>) {
    (dsum.to_vec(), self::scale(dsum, scale))
}

/// `scale · x`.
pub fn scale<T: Real>(x: &[T], scale: T) -> Vec<T> {
    x.iter().map(|&x| scale * x).collect()
}

/// `dx = scale · dy` of [`scale()`].
pub fn scale_backward<T: Real>(scale: T, dy: &[T]) -> Vec<T> {
    self::scale(dy, scale)
}

/// `x` held within `±limit`.
pub fn clamp<T: Real>(x: &[T], limit: T) -> Vec<T> {
    let held = |x: T| match x {
        x if x > limit => limit,
        x if -x > limit => -limit,
        x => x,
    };
    x.iter().map(|&x| held(x)).collect()
}

/// `dx` of [`clamp`]: `dy`, but nothing where a value was held.
pub fn clamp_backward<T: Real>(x: &[T], limit: T, dy: &[T]) -> Vec<T> {
    let within = |x: T| !(x > limit || -x > limit);
    x.iter().zip(dy).map(|(&x, &dy)| if within(x) { dy } else { T::default() }).collect()
}

/// `cap · tanh(x / cap)`.
pub fn soft_cap<T: Real>(x: &[T], cap: T) -> Vec<T> {
    x.iter().map(|&x| cap * (x / cap).tanh()).collect()
}

/// `dx = dy · (1 - tanh(x / cap)²)` of [`soft_cap`].
pub fn soft_cap_backward<T: Real>(x: &[T], cap: T, dy: &[T]) -> Vec<T> {
    let derivative = |x: T| {
        let t = (x / cap).tanh();
        T::from_f64(1.0) - t * t
    };
    x.iter().zip(dy).map(|(&x, &dy)| dy * derivative(x)).collect()
}
