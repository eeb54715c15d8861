//! The gated delta rule of Qwen3-Next: a state that decays, and that each key's value corrects.
#![allow(unsafe_code)]

use selkie_model::reference::ops::DeltaShape;

use super::{
    chunk::{CHUNK, COLUMNS, Chunk, Correct, Gram, Matrix, MatrixMut, state_len},
    state::{Recurrence, RecurrentState},
};
use crate::{
    Isa, Pool,
    error::{Error, Result, expect},
    kernels::{
        Shared,
        scratch::with_scratch,
        vector::{load_some, store_some},
    },
    simd::{Kernel, Simd},
};

/// From this many rows on they are computed as chunks.
const CHUNKED: usize = 8;

/// Added to the sum of squares of a query or a key.
const EPS: f32 = 1e-6;

/// `S = exp(g) S; S = S + k (beta (v - S^T k))^T; y = S^T q` for each head of values, with `g = a_weight softplus(a + dt_bias)`,
/// `beta = sigmoid(b)`, queries and keys of length 1, and queries times `1 / sqrt(k_dim)`.
#[derive(Clone, Debug)]
pub struct DeltaRule {
    shape: DeltaShape,
    a_weight: Vec<f32>,
    dt_bias: Vec<f32>,
    /// `v_dim`, rounded up.
    width: usize,
    widths: [usize; 3],
}

impl DeltaRule {
    /// `a_weight` (negative) and `dt_bias` are `[n_v_heads]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or are zero.
    pub fn new(shape: DeltaShape, a_weight: &[f32], dt_bias: &[f32]) -> Result<Self> {
        let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = shape;
        if [n_k_heads, n_v_heads, k_dim, v_dim].contains(&0) {
            return Err(Error::Parameter("a delta rule has heads of keys and of values"));
        }
        expect("A of a delta rule", "values", n_v_heads, a_weight.len())?;
        expect("dt bias of a delta rule", "values", n_v_heads, dt_bias.len())?;
        Ok(Self {
            a_weight: a_weight.to_vec(),
            dt_bias: dt_bias.to_vec(),
            width: v_dim.next_multiple_of(COLUMNS),
            widths: [2 * n_k_heads * k_dim + n_v_heads * v_dim, n_v_heads, n_v_heads],
            shape,
        })
    }

    /// Values of a head's state.
    fn len(&self) -> usize {
        state_len(self.shape.v_dim, self.shape.k_dim)
    }

    /// The logarithm of a row's decay, and its beta.
    fn factors(&self, head: usize, a: f32, b: f32) -> (f32, f32) {
        let a = a + self.dt_bias[head];
        let step = a.max(0.0) + (-a.abs()).exp().ln_1p();
        (self.a_weight[head] * step, 1.0 / (1.0 + (-b).exp()))
    }

    /// Some rows of one head, at most a chunk; the inputs begin with its first row.
    fn piece(&self, isa: Isa, head: usize, rows: usize, [qkv, b, a]: [&[f32]; 3], state: &mut [f32], room: Room<'_>) {
        let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = self.shape;
        let Room { q, k, v, y, grams, scratch } = room;
        let columns = self.widths[0];
        let key = head * n_k_heads / n_v_heads * k_dim;
        let value = 2 * n_k_heads * k_dim + head * v_dim;
        let (mut decays, mut betas) = ([0f32; CHUNK], [0f32; CHUNK]);
        for row in 0..rows {
            let at = row * n_v_heads + head;
            (decays[row], betas[row]) = self.factors(head, a[at], b[at]);
            v[row * self.width..][..v_dim].copy_from_slice(&qkv[row * columns + value..][..v_dim]);
        }
        let scale = 1.0 / (k_dim as f32).sqrt();
        isa.run(Units { rows, len: k_dim, x: &qkv[key..], stride: columns, scale, out: &mut *q });
        let keys = &qkv[n_k_heads * k_dim + key..];
        isa.run(Units { rows, len: k_dim, x: keys, stride: columns, scale: 1.0, out: &mut *k });
        if rows < CHUNKED {
            for row in 0..rows {
                let keys = row * k_dim..(row + 1) * k_dim;
                let values = row * self.width..(row + 1) * self.width;
                isa.run(Step {
                    decay: decays[row].exp(),
                    beta: betas[row],
                    q: &q[keys.clone()],
                    k: &k[keys],
                    v: &v[values.clone()],
                    state: &mut *state,
                    y: &mut y[values],
                });
            }
            return;
        }
        let matrix = |x: &[f32], stride: usize| Matrix { at: x.as_ptr(), stride };
        let (q, k) = (matrix(q, k_dim), matrix(k, k_dim));
        let (of_keys, of_queries) = grams.split_at_mut(CHUNK * CHUNK);
        isa.run(Gram { rows, rank: 1, d_state: k_dim, q: k, k, out: &mut *of_keys, scratch: &mut *scratch });
        isa.run(Gram { rows, rank: 1, d_state: k_dim, q, k, out: &mut *of_queries, scratch: &mut *scratch });
        isa.run(Correct {
            rows,
            d_state: k_dim,
            k,
            gram: of_keys,
            decays: &decays,
            betas: &betas,
            state: &*state,
            v: &mut *v,
            scratch: &mut *scratch,
        });
        isa.run(Chunk {
            rows,
            rank: 1,
            d_state: k_dim,
            q,
            k,
            gram: of_queries,
            x: matrix(v, self.width),
            decays: &decays,
            gains: &[1.0; CHUNK],
            own: &[1.0; CHUNK],
            d: 0.0,
            state,
            y: MatrixMut { at: y.as_mut_ptr(), stride: self.width },
            scratch,
        });
    }

    /// Where a value of a head's state is inside.
    fn at(&self, key: usize, value: usize) -> usize {
        (value / COLUMNS * self.shape.k_dim + key) * COLUMNS + value % COLUMNS
    }
}

/// The memory that a head works in.
struct Room<'a> {
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
    y: &'a mut [f32],
    grams: &'a mut [f32],
    scratch: &'a mut [f32],
}

/// Rows of `len` values, `stride` apart, as rows of length `scale`.
struct Units<'a> {
    rows: usize,
    len: usize,
    x: &'a [f32],
    stride: usize,
    scale: f32,
    out: &'a mut [f32],
}

impl Kernel for Units<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Units { rows, len, x, stride, scale, out } = self;
        for row in 0..rows {
            let (x, out) = (&x[row * stride..][..len], &mut out[row * len..][..len]);
            let mut squares = s.splat(0.0);
            for i in (0..len).step_by(S::LANES) {
                let x = load_some(s, &x[i..]);
                squares = s.fma(x, x, squares);
            }
            let by = s.splat(scale / (s.sum(squares) + EPS).sqrt());
            for i in (0..len).step_by(S::LANES) {
                store_some(s, &mut out[i..], s.mul(by, load_some(s, &x[i..])));
            }
        }
    }
}

/// One token of one head, in place.
struct Step<'a> {
    decay: f32,
    beta: f32,
    q: &'a [f32],
    k: &'a [f32],
    /// `[width]`, as `y`.
    v: &'a [f32],
    state: &'a mut [f32],
    y: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match S::LANES {
            16 => self.all::<S, 2>(s),
            8 => self.all::<S, 4>(s),
            _ => self.all::<S, 8>(s),
        }
    }
}

impl Step<'_> {
    /// `V` vectors are a block's columns.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "the arrays are registers, and walked together")]
    fn all<S: Simd, const V: usize>(self, s: S) {
        let Step { decay, beta, q, k, v, state, y } = self;
        assert!(q.len() == k.len() && v.len() == y.len() && state.len() == k.len() * y.len());
        let blocks =
            state.chunks_exact_mut(k.len() * COLUMNS).zip(v.chunks_exact(COLUMNS)).zip(y.chunks_exact_mut(COLUMNS));
        for ((state, value), y) in blocks {
            let (mut news, mut sums) = ([s.splat(0.0); V], [s.splat(0.0); V]);
            // SAFETY: all have the columns of a block, and the state the rows of the keys.
            unsafe {
                for n in 0..k.len() {
                    let key = s.splat(k[n]);
                    for v in 0..V {
                        news[v] = s.fma(key, s.load(state.as_ptr().add(n * COLUMNS + v * S::LANES)), news[v]);
                    }
                }
                for v in 0..V {
                    let known = s.mul(s.splat(-decay), news[v]);
                    news[v] = s.mul(s.splat(beta), s.add(s.load(value.as_ptr().add(v * S::LANES)), known));
                }
                for n in 0..k.len() {
                    let (key, query) = (s.splat(k[n]), s.splat(q[n]));
                    for v in 0..V {
                        let at = state.as_mut_ptr().add(n * COLUMNS + v * S::LANES);
                        let next = s.fma(key, news[v], s.mul(s.splat(decay), s.load(at)));
                        s.store(at, next);
                        sums[v] = s.fma(query, next, sums[v]);
                    }
                }
                for v in 0..V {
                    s.store(y.as_mut_ptr().add(v * S::LANES), sums[v]);
                }
            }
        }
    }
}

impl Recurrence for DeltaRule {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.shape.n_v_heads * self.shape.v_dim
    }

    fn planes(&self) -> Vec<usize> {
        vec![self.shape.n_v_heads * self.shape.k_dim * self.shape.v_dim]
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        vec![vec![0.0; self.shape.n_v_heads * self.len()]]
    }

    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]) {
        let &[qkv, b, a] = inputs else { unreachable!("as many as widths") };
        let DeltaShape { n_v_heads, k_dim, v_dim, .. } = self.shape;
        let (state, out, isa) = (Shared(planes[0].as_mut_ptr()), Shared(out.as_mut_ptr()), pool.isa());
        let many = CHUNK.min(rows);
        let parts = [many * k_dim, many * k_dim, many * self.width, many * self.width, 2 * CHUNK * CHUNK];
        let rest = (k_dim * CHUNK).max(2 * CHUNK * CHUNK);
        pool.split(n_v_heads, 1, |heads| {
            let (state, out) = (&state, &out);
            with_scratch(parts.iter().sum::<usize>() + rest, |memory| {
                let (q, memory) = memory.split_at_mut(parts[0]);
                let (k, memory) = memory.split_at_mut(parts[1]);
                let (v, memory) = memory.split_at_mut(parts[2]);
                let (y, memory) = memory.split_at_mut(parts[3]);
                let (grams, scratch) = memory.split_at_mut(parts[4]);
                for head in heads {
                    // What pads the values must stay zero, for the state's sake.
                    v.fill(0.0);
                    // SAFETY: the plane has this head's state, and no other task touches it.
                    let state = unsafe { std::slice::from_raw_parts_mut(state.0.add(head * self.len()), self.len()) };
                    for first in (0..rows).step_by(CHUNK) {
                        let rows = CHUNK.min(rows - first);
                        let inputs = [&qkv[first * self.widths[0]..], &b[first * n_v_heads..], &a[first * n_v_heads..]];
                        let room = Room {
                            q: &mut *q,
                            k: &mut *k,
                            v: &mut *v,
                            y: &mut *y,
                            grams: &mut *grams,
                            scratch: &mut *scratch,
                        };
                        self.piece(isa, head, rows, inputs, state, room);
                        for (row, y) in y.chunks_exact(self.width).take(rows).enumerate() {
                            let at = ((first + row) * n_v_heads + head) * v_dim;
                            // SAFETY: the result has this row, and no other task writes this head's columns.
                            let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(at), v_dim) };
                            out.copy_from_slice(&y[..v_dim]);
                        }
                    }
                }
            });
        });
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let DeltaShape { k_dim, v_dim, .. } = self.shape;
        let values = |x: &[f32]| -> Vec<f32> {
            (0..k_dim).flat_map(|k| (0..v_dim).map(move |v| (k, v))).map(|(k, v)| x[self.at(k, v)]).collect()
        };
        vec![planes[0].chunks_exact(self.len()).flat_map(values).collect()]
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let DeltaShape { k_dim, v_dim, .. } = self.shape;
        let mut out = self.fresh();
        for (x, out) in planes[0].chunks_exact(k_dim * v_dim).zip(out[0].chunks_exact_mut(self.len())) {
            x.iter().enumerate().for_each(|(i, &x)| out[self.at(i / v_dim, i % v_dim)] = x);
        }
        out
    }
}

/// The state of one sequence: one plane, `[n_v_heads, k_dim, v_dim]`.
pub type DeltaState = RecurrentState<DeltaRule>;

impl DeltaState {
    /// Takes in rows of `qkv`, queries, keys and values beside each other, `[rows, 2 * n_k_heads * k_dim + n_v_heads * v_dim]`,
    /// with `b` and `a`, raw, `[rows, n_v_heads]`, and writes `y` into `out`, `[rows, n_v_heads * v_dim]`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, qkv: &[f32], b: &[f32], a: &[f32], out: &mut [f32]) -> Result<()> {
        self.advance(pool, &[qkv, b, a], out)
    }
}
