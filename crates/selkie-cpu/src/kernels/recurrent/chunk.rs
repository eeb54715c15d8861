//! What the layers with one decay per head and token have in common:
//!
//! `S_t = exp(a_t) S_(t-1) + gain_t x_t k_t^T; y_t = S_t q_t + d x_t`
//!
//! Many tokens are computed a chunk at a time as masked matrix products, which is exact: with `l` the sum of the decays
//! from the start of the chunk, row t of the result is `exp(l_t) S q_t` plus the sum over `s <= t` of
//! `exp(l_t - l_s) gain_s (q_t k_s) x_s`.
//!
//! States are kept as `[blocks, d_state, COLUMNS]`, columns being the channels of a head: then nothing is summed across
//! a vector, and what a tile of a product reads lies together.
#![allow(unsafe_code, clippy::needless_range_loop)]

use crate::{
    kernels::math,
    simd::{Kernel, Simd},
};

/// The most rows of a chunk.
pub(super) const CHUNK: usize = 32;

/// Channels of a block: two vectors of the widest set.
pub(super) const COLUMNS: usize = 32;

/// A matrix somewhere: its first value, and how many values apart its rows are.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) at: *const f32,
    pub(super) stride: usize,
}

/// The same, to write to.
#[derive(Clone, Copy)]
pub(super) struct MatrixMut {
    pub(super) at: *mut f32,
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
    /// Both valid for `rows` rows of `d_state`.
    pub(super) q: Matrix,
    pub(super) k: Matrix,
    /// `[rows, CHUNK]`, from [`Gram`].
    pub(super) gram: &'a [f32],
    /// Valid for `rows` rows of `blocks * COLUMNS`.
    pub(super) x: Matrix,
    /// The logarithm of the decay before each row, `[rows]`; none within a token.
    pub(super) decays: &'a [f32],
    /// How strongly later tokens see a row, `[rows]`.
    pub(super) gains: &'a [f32],
    /// How strongly the rows of its own token see it, `[rows]`.
    pub(super) own: &'a [f32],
    pub(super) d: f32,
    /// `[blocks, d_state, COLUMNS]`
    pub(super) state: &'a mut [f32],
    /// Valid for `rows` rows of `blocks * COLUMNS`.
    pub(super) y: MatrixMut,
    /// `2 * CHUNK * CHUNK` values of any content.
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Chunk<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Chunk { rows, rank, d_state, q, k, gram, x, decays, gains, own, d, state, y, scratch } = self;
        assert!((1..=CHUNK).contains(&rows) && scratch.len() >= 2 * CHUNK * CHUNK && gram.len() >= rows * CHUNK);
        assert!(decays.len() >= rows && gains.len() >= rows && own.len() >= rows);
        let (weights, scaled) = scratch.split_at_mut(CHUNK * CHUNK);

        let (high, low) = sums(&decays[..rows]);
        let mut gain = [0f32; CHUNK];
        gain[..rows].copy_from_slice(&gains[..rows]);
        let (end_high, end_low) = (high[rows - 1], low[rows - 1]);
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
            weigh(s, i, token, &high, &low, &gain, gram, row);
            let end = (token + rank).min(rows);
            for j in token..end {
                row[j] = own[j] * gram[j];
            }
            row[i] += d;
            row[end..].fill(0.0);
        }

        let decay = grown[rows - 1];
        for (block, state) in state.chunks_exact_mut(d_state * COLUMNS).enumerate() {
            let column = block * COLUMNS;
            // SAFETY: the rows are those of `x`, and the columns of this block.
            unsafe {
                for (i, row) in scaled[..rows * COLUMNS].chunks_exact_mut(COLUMNS).enumerate() {
                    let by = s.splat(to_end[i]);
                    for v in (0..COLUMNS).step_by(S::LANES) {
                        let x = s.load(x.at.add(i * x.stride + column + v));
                        s.store(row.as_mut_ptr().add(v), s.mul(by, x));
                    }
                }
            }
            for half in (0..COLUMNS).step_by(2 * S::LANES) {
                // SAFETY: all rows and columns are those of the matrices.
                unsafe {
                    let mut result = ResultTile {
                        rows,
                        rank,
                        d_state,
                        q,
                        grown: &grown,
                        weights: weights.as_ptr(),
                        x: Matrix { at: x.at.add(column + half), stride: x.stride },
                        state: state.as_ptr().add(half),
                        y: MatrixMut { at: y.at.add(column + half), stride: y.stride },
                    };
                    by_tiles(s, rows, &mut result);
                    let (scaled, state) = (scaled.as_ptr().add(half), state.as_mut_ptr().add(half));
                    by_tiles(s, d_state, &mut StateTile { rows, decay, k, scaled, state });
                }
            }
        }
    }
}

/// Sums of logarithms of decays from the start on, each in two parts, so that a small difference of large ones keeps its
/// digits.
#[inline(always)]
fn sums(decays: &[f32]) -> ([f32; CHUNK], [f32; CHUNK]) {
    let (mut high, mut low) = ([0f32; CHUNK], [0f32; CHUNK]);
    let mut sum = 0f64;
    for (i, &decay) in decays.iter().enumerate() {
        sum += f64::from(decay);
        high[i] = sum as f32;
        low[i] = (sum - f64::from(high[i])) as f32;
    }
    (high, low)
}

/// How strongly row `i` sees each row before `end`: decay since, gain and product. Leaves anything behind `end`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one shape, many operands")]
fn weigh<S: Simd>(
    s: S,
    i: usize,
    end: usize,
    high: &[f32; CHUNK],
    low: &[f32; CHUNK],
    gain: &[f32; CHUNK],
    gram: &[f32],
    row: &mut [f32],
) {
    assert!(gram.len() == CHUNK && row.len() == CHUNK);
    for j in (0..end).step_by(S::LANES) {
        // SAFETY: all are CHUNK values, whole vectors.
        unsafe {
            let h = s.sub(s.splat(high[i]), s.load(high.as_ptr().add(j)));
            let l = s.sub(s.splat(low[i]), s.load(low.as_ptr().add(j)));
            let weight = s.mul(math::exp(s, s.add(h, l)), s.load(gain.as_ptr().add(j)));
            s.store(row.as_mut_ptr().add(j), s.mul(weight, s.load(gram.as_ptr().add(j))));
        }
    }
}

/// What the rows of a chunk add under the delta rule, where each corrects what the state makes of its key: with `n` for the
/// `x` of a [`Chunk`], `n_t = beta_t (v_t - exp(l_t) S k_t - sum over s < t of exp(l_t - l_s) (k_t k_s) n_s)`.
pub(super) struct Correct<'a> {
    pub(super) rows: usize,
    pub(super) d_state: usize,
    /// Valid for `rows` rows of `d_state`.
    pub(super) k: Matrix,
    /// `[rows, CHUNK]`, of `k` with itself.
    pub(super) gram: &'a [f32],
    /// The logarithm of the decay before each row, `[rows]`.
    pub(super) decays: &'a [f32],
    /// `[rows]`
    pub(super) betas: &'a [f32],
    /// `[blocks, d_state, COLUMNS]`
    pub(super) state: &'a [f32],
    /// `[rows, blocks * COLUMNS]`: v, then n.
    pub(super) v: &'a mut [f32],
    /// `CHUNK * CHUNK` values of any content.
    pub(super) scratch: &'a mut [f32],
}

impl Kernel for Correct<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Correct { rows, d_state, k, gram, decays, betas, state, v, scratch } = self;
        let width = state.len() / d_state;
        assert!((1..=CHUNK).contains(&rows) && gram.len() >= rows * CHUNK && v.len() >= rows * width);
        assert!(width.is_multiple_of(COLUMNS) && state.len() == d_state * width && scratch.len() >= CHUNK * CHUNK);
        let (high, low) = sums(&decays[..rows]);
        for i in 0..rows {
            weigh(s, i, i, &high, &low, &[1.0; CHUNK], &gram[i * CHUNK..][..CHUNK], &mut scratch[i * CHUNK..][..CHUNK]);
        }
        let mut grown = [0f32; CHUNK];
        for i in 0..rows {
            grown[i] = decays[..=i].iter().map(|&decay| f64::from(decay)).sum::<f64>().exp() as f32;
        }
        for (block, state) in state.chunks_exact(d_state * COLUMNS).enumerate() {
            for half in (0..COLUMNS).step_by(2 * S::LANES) {
                // SAFETY: all rows and columns are those of the matrices.
                unsafe {
                    let v = v.as_mut_ptr().add(block * COLUMNS + half);
                    let v = MatrixMut { at: v, stride: width };
                    let (grown, betas) = (&grown[..], betas);
                    by_tiles(s, rows, &mut KnownTile { d_state, k, grown, betas, state: state.as_ptr().add(half), v });
                    for i in 1..rows {
                        let row = v.at.add(i * width);
                        let mut known = [s.splat(0.0); 2];
                        for j in 0..i {
                            let (weight, added) = (s.splat(scratch[i * CHUNK + j]), v.at.add(j * width));
                            known[0] = s.fma(weight, s.load(added), known[0]);
                            known[1] = s.fma(weight, s.load(added.add(S::LANES)), known[1]);
                        }
                        let beta = s.splat(-betas[i]);
                        s.store(row, s.fma(beta, known[0], s.load(row)));
                        s.store(row.add(S::LANES), s.fma(beta, known[1], s.load(row.add(S::LANES))));
                    }
                }
            }
        }
    }
}

/// `v_t = beta_t (v_t - exp(l_t) S k_t)` for two vectors of columns.
struct KnownTile<'a> {
    d_state: usize,
    k: Matrix,
    grown: &'a [f32],
    betas: &'a [f32],
    state: *const f32,
    v: MatrixMut,
}

impl Tiles for KnownTile<'_> {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        let mut acc = [[s.splat(0.0); 2]; T];
        // SAFETY: the rows and columns are within the matrices.
        unsafe {
            let k = self.k.at.add(row * self.k.stride);
            accumulate(s, self.d_state, k, self.k.stride, 1, self.state, COLUMNS, &mut acc);
            for t in 0..T {
                let (decay, beta) = (s.splat(-self.grown[row + t]), s.splat(self.betas[row + t]));
                for half in 0..2 {
                    let v = self.v.at.add((row + t) * self.v.stride + half * S::LANES);
                    s.store(v, s.mul(beta, s.fma(decay, acc[t][half], s.load(v))));
                }
            }
        }
    }
}

/// Two vectors of columns of the result.
struct ResultTile<'a> {
    rows: usize,
    rank: usize,
    d_state: usize,
    q: Matrix,
    grown: &'a [f32; CHUNK],
    weights: *const f32,
    x: Matrix,
    state: *const f32,
    y: MatrixMut,
}

impl Tiles for ResultTile<'_> {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        let end = token_end(row + T - 1, self.rank).min(self.rows);
        let mut acc = [[s.splat(0.0); 2]; T];
        // SAFETY: the rows and columns are within the matrices.
        unsafe {
            let q = self.q.at.add(row * self.q.stride);
            accumulate(s, self.d_state, q, self.q.stride, 1, self.state, COLUMNS, &mut acc);
            for t in 0..T {
                let by = s.splat(self.grown[row + t]);
                acc[t] = [s.mul(acc[t][0], by), s.mul(acc[t][1], by)];
            }
            accumulate(s, end, self.weights.add(row * CHUNK), CHUNK, 1, self.x.at, self.x.stride, &mut acc);
            store(s, &acc, self.y.at.add(row * self.y.stride), self.y.stride);
        }
    }
}

/// Two vectors of columns of a block of the state.
struct StateTile {
    rows: usize,
    decay: f32,
    k: Matrix,
    scaled: *const f32,
    state: *mut f32,
}

impl Tiles for StateTile {
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize>(&mut self, s: S, row: usize) {
        // SAFETY: the rows and columns are within the matrices.
        unsafe {
            let state = self.state.add(row * COLUMNS);
            let by = s.splat(self.decay);
            let mut acc = [[s.splat(0.0); 2]; T];
            for t in 0..T {
                let state = state.add(t * COLUMNS);
                acc[t] = [s.mul(by, s.load(state)), s.mul(by, s.load(state.add(S::LANES)))];
            }
            accumulate(s, self.rows, self.k.at.add(row), 1, self.k.stride, self.scaled, COLUMNS, &mut acc);
            store(s, &acc, state, COLUMNS);
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
    /// One or two inputs: `x`, `[blocks * COLUMNS]`, times its gain, with its `k`, `[d_state]`.
    pub(super) inputs: &'a [(&'a [f32], &'a [f32])],
    pub(super) q: &'a [f32],
    /// `[blocks, d_state, COLUMNS]`
    pub(super) state: &'a mut [f32],
    /// `[blocks * COLUMNS]`
    pub(super) y: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (self.inputs.len(), S::LANES) {
            (1, 16) => self.all::<S, 1, 2>(s),
            (1, 8) => self.all::<S, 1, 4>(s),
            (1, _) => self.all::<S, 1, 8>(s),
            (2, 16) => self.all::<S, 2, 2>(s),
            (2, 8) => self.all::<S, 2, 4>(s),
            (2, _) => self.all::<S, 2, 8>(s),
            _ => unreachable!("one or two inputs"),
        }
    }
}

impl Step<'_> {
    /// `I` inputs; `V` vectors are a block's columns.
    #[inline(always)]
    fn all<S: Simd, const I: usize, const V: usize>(self, s: S) {
        let Step { decay, inputs, q, state, y } = self;
        assert!(state.len() == q.len() * y.len());
        assert!(inputs.iter().all(|(x, k)| x.len() == y.len() && k.len() == q.len()));
        let decay = s.splat(decay);
        for (block, y) in y.chunks_exact_mut(COLUMNS).enumerate() {
            let mut sums = [s.splat(0.0); V];
            let mut xs = [[s.splat(0.0); V]; I];
            // SAFETY: all have these columns, and the rows of `q`.
            unsafe {
                for i in 0..I {
                    for v in 0..V {
                        xs[i][v] = s.load(inputs[i].0.as_ptr().add(block * COLUMNS + v * S::LANES));
                    }
                }
                for n in 0..q.len() {
                    let row = state.as_mut_ptr().add((block * q.len() + n) * COLUMNS);
                    let q = s.splat(q[n]);
                    let mut ks = [s.splat(0.0); I];
                    for i in 0..I {
                        ks[i] = s.splat(*inputs[i].1.as_ptr().add(n));
                    }
                    for v in 0..V {
                        let mut value = s.mul(decay, s.load(row.add(v * S::LANES)));
                        for i in 0..I {
                            value = s.fma(ks[i], xs[i][v], value);
                        }
                        s.store(row.add(v * S::LANES), value);
                        sums[v] = s.fma(q, value, sums[v]);
                    }
                }
                for v in 0..V {
                    s.store(y.as_mut_ptr().add(v * S::LANES), sums[v]);
                }
            }
        }
    }
}

/// Where a value of a state is among the blocks of its head.
fn at(d_state: usize, channel: usize, n: usize) -> usize {
    (channel / COLUMNS * d_state + n) * COLUMNS + channel % COLUMNS
}

/// Values of a head's state in blocks.
pub(super) fn state_len(head_dim: usize, d_state: usize) -> usize {
    head_dim.next_multiple_of(COLUMNS) * d_state
}

/// Blocks of all heads into `[heads, head_dim, d_state]`.
pub(super) fn from_blocks(head_dim: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let values = |x: &[f32]| -> Vec<f32> {
        (0..head_dim).flat_map(|p| (0..d_state).map(move |n| at(d_state, p, n))).map(|i| x[i]).collect()
    };
    x.chunks_exact(state_len(head_dim, d_state)).flat_map(values).collect()
}

/// The reverse.
pub(super) fn to_blocks(head_dim: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let len = state_len(head_dim, d_state);
    let mut out = vec![0.0; x.len() / (head_dim * d_state) * len];
    for (x, out) in x.chunks_exact(head_dim * d_state).zip(out.chunks_exact_mut(len)) {
        x.iter().enumerate().for_each(|(i, &x)| out[at(d_state, i / d_state, i % d_state)] = x);
    }
    out
}
