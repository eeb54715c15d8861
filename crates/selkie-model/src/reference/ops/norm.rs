//! Norms.

use crate::reference::Real;

/// `x / sqrt(mean(x²) + eps) · weight`, over groups as long as the weight.
pub fn rms_norm<T: Real>(x: &[T], weight: &[T], eps: T) -> Vec<T> {
    let mut out = Vec::with_capacity(x.len());
    for group in x.chunks_exact(weight.len()) {
        let mean = group.iter().map(|&v| v * v).sum::<T>() / T::from_usize(group.len());
        let scale = T::from_f64(1.0) / (mean + eps).sqrt();
        out.extend(group.iter().zip(weight).map(|(&v, &w)| v * scale * w));
    }
    out
}
