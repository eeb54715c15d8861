//! Norms.

use crate::reference::Real;

/// `x / sqrt(mean(x²) + eps) · weight`, the mean over each `group` values of `x`.
///
/// The weight is as long as a group, or as a row of several groups: value `j` of `x` meets `weight[j mod len]`.
pub fn rms_norm<T: Real>(x: &[T], weight: &[T], group: usize, eps: T) -> Vec<T> {
    let mut out = Vec::with_capacity(x.len());
    for (g, x) in x.chunks_exact(group).enumerate() {
        let weight = &weight[g * group % weight.len()..][..group];
        let scale = rms_scale(x, eps);
        out.extend(x.iter().zip(weight).map(|(&x, &w)| x * scale * w));
    }
    out
}

/// `(dx, dweight)` of [`rms_norm`]. With `s = 1 / sqrt(mean(x²) + eps)`, `n = s·x` and `g = dy·weight`:
/// `dx = s·(g - n·mean(g·n))`, `dweight = Σ dy·n` over all that meet one weight.
pub fn rms_norm_backward<T: Real>(x: &[T], weight: &[T], group: usize, eps: T, dy: &[T]) -> (Vec<T>, Vec<T>) {
    let mut dx = Vec::with_capacity(x.len());
    let mut dweight = vec![T::default(); weight.len()];
    for (g, (x, dy)) in x.chunks_exact(group).zip(dy.chunks_exact(group)).enumerate() {
        let start = g * group % weight.len();
        let scale = rms_scale(x, eps);
        let normed: Vec<T> = x.iter().map(|&x| x * scale).collect();
        let dnormed: Vec<T> = dy.iter().zip(&weight[start..]).map(|(&dy, &w)| dy * w).collect();
        let along = mean(dnormed.iter().zip(&normed).map(|(&d, &n)| d * n), group);
        dx.extend(dnormed.iter().zip(&normed).map(|(&d, &n)| scale * (d - n * along)));
        for ((dw, &dy), &n) in dweight[start..].iter_mut().zip(dy).zip(&normed) {
            *dw += dy * n;
        }
    }
    (dx, dweight)
}

/// As [`rms_norm`], without a weight.
pub fn rms_norm_plain<T: Real>(x: &[T], group: usize, eps: T) -> Vec<T> {
    rms_norm(x, &vec![T::from_f64(1.0); group], group, eps)
}

/// `dx` of [`rms_norm_plain`].
pub fn rms_norm_plain_backward<T: Real>(x: &[T], group: usize, eps: T, dy: &[T]) -> Vec<T> {
    rms_norm_backward(x, &vec![T::from_f64(1.0); group], group, eps, dy).0
}

/// `(x - mean(x)) / sqrt(var(x) + eps) · weight + bias` over rows as long as the weight; the variance is
/// `mean((x - mean(x))²)`.
pub fn layer_norm<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, eps: T) -> Vec<T> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(weight.len()) {
        let (normed, _) = standardise(row, eps);
        for (i, (&n, &w)) in normed.iter().zip(weight).enumerate() {
            out.push(n * w + bias.map_or(T::default(), |b| b[i]));
        }
    }
    out
}

/// `(dx, dweight, dbias)` of [`layer_norm`]. With `s = 1 / sqrt(var(x) + eps)`, `n = s·(x - mean(x))` and
/// `g = dy·weight`: `dx = s·(g - mean(g) - n·mean(g·n))`, `dweight = Σ dy·n` and `dbias = Σ dy` over rows.
pub fn layer_norm_backward<T: Real>(x: &[T], weight: &[T], eps: T, dy: &[T]) -> (Vec<T>, Vec<T>, Vec<T>) {
    let width = weight.len();
    let mut dx = Vec::with_capacity(x.len());
    let (mut dweight, mut dbias) = (vec![T::default(); width], vec![T::default(); width]);
    for (row, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        let (normed, scale) = standardise(row, eps);
        let dnormed: Vec<T> = dy.iter().zip(weight).map(|(&dy, &w)| dy * w).collect();
        let level = mean(dnormed.iter().copied(), width);
        let along = mean(dnormed.iter().zip(&normed).map(|(&d, &n)| d * n), width);
        dx.extend(dnormed.iter().zip(&normed).map(|(&d, &n)| scale * (d - level - n * along)));
        for i in 0..width {
            dweight[i] += dy[i] * normed[i];
            dbias[i] += dy[i];
        }
    }
    (dx, dweight, dbias)
}

/// `1 / sqrt(mean(x²) + eps)`.
fn rms_scale<T: Real>(x: &[T], eps: T) -> T {
    T::from_f64(1.0) / (mean(x.iter().map(|&v| v * v), x.len()) + eps).sqrt()
}

/// `x` with mean 0 and variance 1 (less what `eps` takes), and what its deviations were multiplied by.
fn standardise<T: Real>(x: &[T], eps: T) -> (Vec<T>, T) {
    let centre = mean(x.iter().copied(), x.len());
    let deviations: Vec<T> = x.iter().map(|&v| v - centre).collect();
    let scale = rms_scale(&deviations, eps);
    (deviations.iter().map(|&d| d * scale).collect(), scale)
}

fn mean<T: Real>(values: impl Iterator<Item = T>, n: usize) -> T {
    values.sum::<T>() / T::from_usize(n)
}
