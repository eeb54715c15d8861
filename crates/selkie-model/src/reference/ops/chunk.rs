//! A chunk of rows of a recurrence with one decay a row, as products of matrices.

use super::attention::dot;
use crate::reference::Real;

/// What one head makes of a chunk of rows; each row has `rank` queries, keys and values.
pub(super) struct Chunk<'a, T> {
    /// `[rows, rank, d_state]`: what the states are read with.
    pub q: &'a [T],
    /// `[rows, rank, d_state]`.
    pub k: &'a [T],
    /// `[rows, rank, head_dim]`.
    pub v: &'a [T],
    /// `[rows]`: the states decay by `e` to this power on entering a row.
    pub log_decay: &'a [T],
    /// `[rows]`: multiplies a row's `v · kᵀ`.
    pub scale: &'a [T],
    pub d_state: usize,
    pub head_dim: usize,
    pub rank: usize,
    /// Whether a row reads its own input; if not, only those before it.
    pub own: bool,
}

/// `S_t = e^{a_t} · S_{t-1} + scale_t · Σ_r v_{t,r} · k_{t,r}ᵀ` and `y_{t,r} = S_t · q_{t,r}` for all rows of a chunk at
/// once. With `L_ts = a_{s+1} + … + a_t` and `ℓ_t` the sum from the chunk's start:
///
/// `y_t = Σ_{s≤t} e^{L_ts} · scale_s · (q_t·k_s) · v_s + e^{ℓ_t} · S · q_t`, then
/// `S = e^{ℓ_last} · S + Σ_s e^{L_last,s} · scale_s · v_s · k_sᵀ`.
///
/// `state` `[head_dim, d_state]`, in and out; gives `[rows, rank, head_dim]`. Every sum of `a` is formed by itself, not
/// as the difference of two longer ones, whose rounding would show where the decay is strong.
pub(super) fn scan_chunk<T: Real>(chunk: &Chunk<'_, T>, state: &mut [T]) -> Vec<T> {
    let &Chunk { q, k, v, log_decay, scale, d_state, head_dim, rank, own } = chunk;
    let key = |row: usize, r: usize| &k[(row * rank + r) * d_state..][..d_state];
    let value = |row: usize, r: usize| &v[(row * rank + r) * head_dim..][..head_dim];
    let rows = log_decay.len();
    let mut y = Vec::with_capacity(v.len());
    for t in 0..rows {
        for r in 0..rank {
            let query = &q[(t * rank + r) * d_state..][..d_state];
            let mut out = vec![T::default(); head_dim];
            let mut since = T::default();
            for s in (0..=t).rev() {
                if s < t || own {
                    for r in 0..rank {
                        let weight = since.exp() * scale[s] * dot(query, key(s, r));
                        out.iter_mut().zip(value(s, r)).for_each(|(y, &v)| *y += weight * v);
                    }
                }
                since += log_decay[s];
            }
            for (y, s) in out.iter_mut().zip(state.chunks_exact(d_state)) {
                *y += since.exp() * dot(s, query);
            }
            y.extend(out);
        }
    }
    let mut until_end = T::default();
    let mut added = vec![T::default(); state.len()];
    for s in (0..rows).rev() {
        for r in 0..rank {
            for (added, &v) in added.chunks_exact_mut(d_state).zip(value(s, r)) {
                let weight = until_end.exp() * scale[s] * v;
                added.iter_mut().zip(key(s, r)).for_each(|(added, &k)| *added += weight * k);
            }
        }
        until_end += log_decay[s];
    }
    state.iter_mut().zip(added).for_each(|(s, added)| *s = until_end.exp() * *s + added);
    y
}
