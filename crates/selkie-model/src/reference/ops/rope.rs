//! Rotation of pairs.

use crate::{reference::Real, rope::Pairing};

/// Turns the first `2 · angles.len()` channels of one head by `(cos, sin)`; the rest stays.
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
