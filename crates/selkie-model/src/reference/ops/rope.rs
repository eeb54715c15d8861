//! Rotation of pairs.

use crate::{reference::Real, rope::Pairing};

/// Turns the first `2 · angles.len()` channels of one head by `(cos, sin)`; the rest stays:
/// `(u, v)` becomes `(u·cos - v·sin, u·sin + v·cos)`.
pub fn rope<T: Real>(head: &mut [T], angles: &[(T, T)], pairing: Pairing) {
    for (i, &(cos, sin)) in angles.iter().enumerate() {
        let (a, b) = match pairing {
            Pairing::Halves => (i, i + angles.len()),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (u, v) = (head[a], head[b]);
        head[a] = u * cos - v * sin;
        head[b] = u * sin + v * cos;
    }
}

/// The gradient of one head through [`rope`]: turned back by the same angles, times the same factor where `cos` and
/// `sin` carry one (the transpose, which is the inverse for a plain rotation only).
pub fn rope_backward<T: Real>(dhead: &mut [T], angles: &[(T, T)], pairing: Pairing) {
    let back: Vec<(T, T)> = angles.iter().map(|&(cos, sin)| (cos, -sin)).collect();
    rope(dhead, &back, pairing);
}
