//! What the layers with one decay per head and token have in common:
//!
//! `S_t = exp(a_t) S_(t-1) + gain_t x_t k_t^T; y_t = S_t q_t + d x_t`
//!
//! Many tokens are computed a chunk at a time as masked matrix products, which is exact: with `l` the sum of the decays
//! from the start of the chunk, row t of the result is `exp(l_t) S q_t` plus the sum over `s <= t` of
//! `exp(l_t - l_s) gain_s (q_t k_s) x_s`.
//!
//! States are kept as `[d_state, width]`: then nothing is summed across a vector.
#![allow(unsafe_code, clippy::needless_range_loop)]

use crate::{
    kernels::math,
    simd::{Kernel, Simd},
};

/// The most rows of a chunk.
pub(super) const CHUNK: usize = 64;

/// Columns of states come in multiples of this: two vectors of any set.
pub(super) const COLUMNS: usize = 32;

/// A matrix somewhere: its first value, and how many values apart its rows are.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) at: *const f32,
    pub(super) stride: usize,
}

/// `[rows, CHUNK]`: the products of each row of `q` with the rows of `k` up to its own token's last, `rank` rows a token.
pub(super) struct Gram<'a> {
    pub(super) rows: usize,
    pub(super) rank: usize,
    pub(super) d_state: usize,
    /// Both valid for `rows` rows of `d_state`.
    pub(super) q: Matrix,
    pub(super) k: Matrix,
    pub(super) out: &'a mut [f32],
    /// `d_state * CHUNK` values of any content.
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Gram<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gram { rows, rank, d_state, q, k, out, scratch } = self;
        assert!(rows <= CHUNK && out.len() >= rows * CHUNK && scratch.len() >= d_state * CHUNK);
        // SAFETY: `k` has these rows, and the scratch memory room for all, padded; eight columns at a time are within
        // a row where eight are left.
        unsafe {
            let whole = d_state / 8 * 8;
            for from in (0..rows).step_by(8) {
                for n in (0..whole).step_by(8) {
                    let mut block = [s.splat_b(0); 8];
                    for r in 0..8 {
                        // Missing rows repeat the last: nothing is made of them.
                        block[r] = s.load_b(k.at.add((from + r).min(rows - 1) * k.stride + n).cast());
                    }
                    s.interleave(block, scratch.as_mut_ptr().add(n * CHUNK + from).cast(), 4 * CHUNK);
                }
                for n in whole..d_state {
                    for r in from..from + 8 {
                        scratch[n * CHUNK + r] = *k.at.add(r.min(rows - 1) * k.stride + n);
                    }
                }
            }
            // What pads the panel is multiplied with, and must only be finite.
            for row in scratch[..d_state * CHUNK].chunks_exact_mut(CHUNK) {
                row[rows.next_multiple_of(8)..].fill(0.0);
            }
            by_tiles(s, rows, &mut GramTile { rows, rank, d_state, q, panel: scratch.as_ptr(), out: out.as_mut_ptr() });
        }
    }
}

struct GramTile {
    rows: usize,
    rank: usize,
    d_state: usize,
    q: Matrix,
    panel: *const f32,
    out: *mut f32,
}

impl Tiles for GramTile {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        let end = token_end(row + T - 1, self.rank).min(self.rows);
        for column in (0..end).step_by(2 * S::LANES) {
            let mut acc = [[s.splat(0.0); 2]; T];
            // SAFETY: the rows and columns are within the matrices.
            unsafe {
                let x = self.q.at.add(row * self.q.stride);
                accumulate(s, self.d_state, x, self.q.stride, 1, self.panel.add(column), CHUNK, &mut acc);
                store(s, &acc, self.out.add(row * CHUNK + column), CHUNK);
            }
        }
    }
}

/// The row behind the last of the token that `row` belongs to.
#[inline(always)]
fn token_end(row: usize, rank: usize) -> usize {
    (row / rank + 1) * rank
}

/// One chunk of one head.
pub(super) struct Chunk<'a> {
    /// At most `CHUNK`, whole tokens of `rank` rows each.
    pub(super) rows: usize,
    pub(super) rank: usize,
    pub(super) d_state: usize,
    /// A multiple of `COLUMNS`.
    pub(super) width: usize,
    /// Both valid for `rows` rows of `d_state`.
    pub(super) q: Matrix,
    pub(super) k: Matrix,
    /// `[rows, CHUNK]`, from [`Gram`].
    pub(super) gram: &'a [f32],
    /// `[rows, width]`
    pub(super) x: &'a [f32],
    /// The logarithm of the decay before each row, `[rows]`; none within a token.
    pub(super) decays: &'a [f32],
    /// How strongly later tokens see a row, `[rows]`.
    pub(super) gains: &'a [f32],
    /// How strongly the rows of its own token see it, `[rows]`.
    pub(super) own: &'a [f32],
    pub(super) d: f32,
    /// `[d_state, width]`
    pub(super) state: &'a mut [f32],
    /// Whether the state goes on to the end of the chunk.
    pub(super) advance: bool,
    /// `[rows, width]`
    pub(super) y: &'a mut [f32],
    /// `(CHUNK + width) * CHUNK` values of any content.
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Chunk<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Chunk { rows, rank, d_state, width, q, k, gram, x, decays, gains, own, d, state, advance, y, scratch } =
            self;
        assert!(rows <= CHUNK && width.is_multiple_of(COLUMNS) && scratch.len() >= (CHUNK + width) * CHUNK);
        assert!(gram.len() >= rows * CHUNK && x.len() >= rows * width && y.len() >= rows * width);
        assert!(decays.len() >= rows && gains.len() >= rows && own.len() >= rows && state.len() >= d_state * width);
        let (weights, scaled) = scratch.split_at_mut(CHUNK * CHUNK);

        // Sums of decays in two parts, so that a small difference of large ones keeps its digits.
        let (mut high, mut low, mut gain) = ([0f32; CHUNK], [0f32; CHUNK], [0f32; CHUNK]);
        let mut sum = 0f64;
        for i in 0..rows {
            sum += decays[i] as f64;
            high[i] = sum as f32;
            low[i] = (sum - high[i] as f64) as f32;
        }
        gain[..rows].copy_from_slice(&gains[..rows]);
        let (end_high, end_low) = (sum as f32, (sum - sum as f32 as f64) as f32);
        let (mut grown, mut to_end) = ([0f32; CHUNK], [0f32; CHUNK]);
        // SAFETY: all of these are CHUNK values, whole vectors.
        unsafe {
            for i in (0..CHUNK).step_by(S::LANES) {
                let (h, l) = (s.load(high.as_ptr().add(i)), s.load(low.as_ptr().add(i)));
                s.store(grown.as_mut_ptr().add(i), math::exp(s, s.add(h, l)));
                let left = s.add(s.sub(s.splat(end_high), h), s.sub(s.splat(end_low), l));
                let left = s.mul(math::exp(s, left), s.load(gain.as_ptr().add(i)));
                s.store(to_end.as_mut_ptr().add(i), left);
            }
        }
        for i in 0..rows {
            let token = i / rank * rank;
            let row = &mut weights[i * CHUNK..][..CHUNK];
            let gram = &gram[i * CHUNK..][..CHUNK];
            // SAFETY: rows are CHUNK values, whole vectors.
            unsafe {
                for j in (0..token).step_by(S::LANES) {
                    let h = s.sub(s.splat(high[i]), s.load(high.as_ptr().add(j)));
                    let l = s.sub(s.splat(low[i]), s.load(low.as_ptr().add(j)));
                    let weight = s.mul(math::exp(s, s.add(h, l)), s.load(gain.as_ptr().add(j)));
                    s.store(row.as_mut_ptr().add(j), s.mul(weight, s.load(gram.as_ptr().add(j))));
                }
            }
            let end = (token + rank).min(rows);
            for j in token..end {
                row[j] = own[j] * gram[j];
            }
            row[i] += d;
            row[end..].fill(0.0);
        }
        if advance {
            for ((scaled, x), by) in scaled.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(&to_end[..rows]) {
                scaled.iter_mut().zip(x).for_each(|(scaled, x)| *scaled = by * x);
            }
        }
        // SAFETY: all rows and columns are within what was checked above.
        unsafe {
            let mut result = ResultTile {
                rows,
                rank,
                d_state,
                width,
                q,
                grown: &grown,
                weights: weights.as_ptr(),
                x: x.as_ptr(),
                state: state.as_ptr(),
                y: y.as_mut_ptr(),
            };
            by_tiles(s, rows, &mut result);
            if advance {
                let (decay, state) = (grown[rows - 1], state.as_mut_ptr());
                by_tiles(s, d_state, &mut StateTile { rows, width, decay, k, scaled: scaled.as_ptr(), state });
            }
        }
    }
}

struct ResultTile<'a> {
    rows: usize,
    rank: usize,
    d_state: usize,
    width: usize,
    q: Matrix,
    grown: &'a [f32; CHUNK],
    weights: *const f32,
    x: *const f32,
    state: *const f32,
    y: *mut f32,
}

impl Tiles for ResultTile<'_> {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        let end = token_end(row + T - 1, self.rank).min(self.rows);
        for column in (0..self.width).step_by(2 * S::LANES) {
            let mut acc = [[s.splat(0.0); 2]; T];
            // SAFETY: the rows and columns are within the matrices.
            unsafe {
                let q = self.q.at.add(row * self.q.stride);
                accumulate(s, self.d_state, q, self.q.stride, 1, self.state.add(column), self.width, &mut acc);
                for t in 0..T {
                    let by = s.splat(self.grown[row + t]);
                    acc[t] = [s.mul(acc[t][0], by), s.mul(acc[t][1], by)];
                }
                let weights = self.weights.add(row * CHUNK);
                accumulate(s, end, weights, CHUNK, 1, self.x.add(column), self.width, &mut acc);
                store(s, &acc, self.y.add(row * self.width + column), self.width);
            }
        }
    }
}

struct StateTile {
    rows: usize,
    width: usize,
    decay: f32,
    k: Matrix,
    scaled: *const f32,
    state: *mut f32,
}

impl Tiles for StateTile {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        for column in (0..self.width).step_by(2 * S::LANES) {
            // SAFETY: the rows and columns are within the matrices.
            unsafe {
                let state = self.state.add(row * self.width + column);
                let mut acc = [[s.splat(0.0); 2]; T];
                for t in 0..T {
                    let state = state.add(t * self.width);
                    let by = s.splat(self.decay);
                    acc[t] = [s.mul(by, s.load(state)), s.mul(by, s.load(state.add(S::LANES)))];
                }
                let k = self.k.at.add(row);
                accumulate(s, self.rows, k, 1, self.k.stride, self.scaled.add(column), self.width, &mut acc);
                store(s, &acc, state, self.width);
            }
        }
    }
}

/// A matrix product, some rows of its result at a time.
trait Tiles {
    /// Rows `row..row + T`.
    ///
    /// # Safety
    /// They are rows of the result.
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize);
}

/// All of `rows` in as few pieces as can be.
///
/// # Safety
/// They are the rows of the result.
#[inline(always)]
unsafe fn by_tiles<S: Simd, T: Tiles>(s: S, rows: usize, tiles: &mut T) {
    let mut row = 0;
    // SAFETY: the caller's.
    unsafe {
        while rows - row >= S::FLOAT_TILE {
            match S::FLOAT_TILE {
                8 => tiles.tile::<S, 8>(s, row),
                6 => tiles.tile::<S, 6>(s, row),
                _ => tiles.tile::<S, 4>(s, row),
            }
            row += if S::FLOAT_TILE > 4 { S::FLOAT_TILE } else { 4 };
        }
        if S::FLOAT_TILE > 4 && rows - row >= 4 {
            tiles.tile::<S, 4>(s, row);
            row += 4;
        }
        if rows - row >= 2 {
            tiles.tile::<S, 2>(s, row);
            row += 2;
        }
        if rows - row >= 1 {
            tiles.tile::<S, 1>(s, row);
        }
    }
}

/// `acc[t] += sum over k of x[t * row + k * step] * panel[k * stride ..][.. two vectors]`
///
/// # Safety
/// Both are valid for `depth` such values.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one shape, many sizes")]
unsafe fn accumulate<S: Simd, const T: usize>(
    s: S,
    depth: usize,
    x: *const f32,
    row: usize,
    step: usize,
    panel: *const f32,
    stride: usize,
    acc: &mut [[S::F; 2]; T],
) {
    // SAFETY: the caller's.
    unsafe {
        for k in 0..depth {
            let w = panel.add(k * stride);
            let w = [s.load(w), s.load(w.add(S::LANES))];
            for t in 0..T {
                let x = s.splat(*x.add(t * row + k * step));
                acc[t] = [s.fma(w[0], x, acc[t][0]), s.fma(w[1], x, acc[t][1])];
            }
        }
    }
}

/// # Safety
/// `out` is valid for `T` rows of two vectors.
#[inline(always)]
unsafe fn store<S: Simd, const T: usize>(s: S, acc: &[[S::F; 2]; T], out: *mut f32, stride: usize) {
    // SAFETY: the caller's.
    unsafe {
        for t in 0..T {
            s.store(out.add(t * stride), acc[t][0]);
            s.store(out.add(t * stride + S::LANES), acc[t][1]);
        }
    }
}

/// One token of one head, in place: `S = decay S + sum of k x^T; y = S q`.
pub(super) struct Step<'a> {
    pub(super) decay: f32,
    /// One or two inputs: `x`, `[width]`, times its gain, with its `k`, `[d_state]`.
    pub(super) inputs: &'a [(&'a [f32], &'a [f32])],
    pub(super) q: &'a [f32],
    /// `[d_state, width]`; the width is a multiple of `COLUMNS`.
    pub(super) state: &'a mut [f32],
    /// `[width]`
    pub(super) y: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.y.len();
        assert!(width.is_multiple_of(COLUMNS) && self.state.len() == self.q.len() * width);
        assert!(self.inputs.iter().all(|(x, k)| x.len() == width && k.len() == self.q.len()));
        match (self.inputs.len(), S::LANES, width.is_multiple_of(2 * COLUMNS)) {
            (1, 16, false) => self.all::<S, 1, 2>(s),
            (1, 16, true) | (1, 8, false) => self.all::<S, 1, 4>(s),
            (1, _, _) => self.all::<S, 1, 8>(s),
            (2, 16, false) => self.all::<S, 2, 2>(s),
            (2, 16, true) | (2, 8, false) => self.all::<S, 2, 4>(s),
            (2, _, _) => self.all::<S, 2, 8>(s),
            _ => unreachable!("one or two inputs"),
        }
    }
}

impl Step<'_> {
    /// `I` inputs, `V` vectors of columns at a time.
    #[inline(always)]
    fn all<S: Simd, const I: usize, const V: usize>(self, s: S) {
        let Step { decay, inputs, q, state, y } = self;
        let width = y.len();
        let decay = s.splat(decay);
        for column in (0..width).step_by(V * S::LANES) {
            let mut sums = [s.splat(0.0); V];
            // SAFETY: all have these columns, and the rows of `q`.
            unsafe {
                for n in 0..q.len() {
                    let row = state.as_mut_ptr().add(n * width + column);
                    let q = s.splat(q[n]);
                    let mut ks = [s.splat(0.0); I];
                    for i in 0..I {
                        ks[i] = s.splat(*inputs[i].1.as_ptr().add(n));
                    }
                    for v in 0..V {
                        let mut value = s.mul(decay, s.load(row.add(v * S::LANES)));
                        for i in 0..I {
                            let x = s.load(inputs[i].0.as_ptr().add(column + v * S::LANES));
                            value = s.fma(ks[i], x, value);
                        }
                        s.store(row.add(v * S::LANES), value);
                        sums[v] = s.fma(q, value, sums[v]);
                    }
                }
                for v in 0..V {
                    s.store(y.as_mut_ptr().add(column + v * S::LANES), sums[v]);
                }
            }
        }
    }
}

/// `[heads, d_state, width]` into `[heads, head_dim, d_state]`.
pub(super) fn export(head_dim: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let width = head_dim.next_multiple_of(COLUMNS);
    let head = |x: &[f32]| (0..head_dim).flat_map(|p| x[p..].iter().step_by(width).copied()).collect::<Vec<_>>();
    x.chunks_exact(d_state * width).flat_map(head).collect()
}

/// The reverse.
pub(super) fn import(head_dim: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let width = head_dim.next_multiple_of(COLUMNS);
    let mut out = vec![0.0; x.len() / head_dim * width];
    for (x, out) in x.chunks_exact(head_dim * d_state).zip(out.chunks_exact_mut(d_state * width)) {
        for (p, x) in x.chunks_exact(d_state).enumerate() {
            x.iter().enumerate().for_each(|(n, &x)| out[n * width + p] = x);
        }
    }
    out
}
