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
