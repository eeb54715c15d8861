//! The selective scan of Mamba-1: a state per channel, each of its values with a decay of its own.
//!
//! Sixteen channels are computed together, a vector or a few of them for each value of the state: so the result is a sum
//! of vectors, and everything but the decays' exponentials is a few instructions.
#![allow(unsafe_code)]

use std::ops::Range;

use selkie_model::reference::ops::InputRule;

use super::state::{Recurrence, RecurrentState};
use crate::{
    Pool,
    error::{Error, Result, expect},
    kernels::{
        Shared, math,
        vector::{load_some, store_some},
    },
    simd::{Kernel, Simd},
};

/// Channels computed together: the lanes of the widest vector.
const BLOCK: usize = 16;

/// Values of states, times tokens, in a task: some 5 us of work.
const GRAIN: usize = 16 << 10;

/// Rows whose steps and inputs are prepared at once: their memory is far apart, and waited for together.
const TILE: usize = 8;

/// `h = exp(dt A) h + input; y = C h + D x` for each channel, with `dt` after a softplus.
#[derive(Clone, Debug)]
pub struct SelectiveScan {
    channels: usize,
    d_state: usize,
    rule: InputRule,
    /// A / ln 2 by blocks of channels, `[blocks, d_state, BLOCK]`.
    rate: Vec<f32>,
    /// 1 / A in the same order, where the rule wants it.
    inverse: Vec<f32>,
    d: Vec<f32>,
    widths: [usize; 4],
}

impl SelectiveScan {
    /// `a`, negative, is `[channels, d_state]`; `d` is `[channels]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or are zero.
    pub fn new(channels: usize, d_state: usize, rule: InputRule, a: &[f32], d: &[f32]) -> Result<Self> {
        if channels == 0 || d_state == 0 {
            return Err(Error::Parameter("a selective scan has channels, and values in their states"));
        }
        expect("A of a selective scan", "values", channels.saturating_mul(d_state), a.len())?;
        expect("D of a selective scan", "values", channels, d.len())?;
        // Where A is none, the smallest number gives the limit of the rule.
        let a: Vec<f32> = a.iter().map(|&a| if a == 0.0 { -1e-30 } else { a }).collect();
        let map = |f: fn(f32) -> f32| to_blocks(channels, d_state, &a.iter().map(|&a| f(a)).collect::<Vec<_>>());
        Ok(Self {
            channels,
            d_state,
            rule,
            rate: map(|a| (f64::from(a) * std::f64::consts::LOG2_E) as f32),
            inverse: if rule == InputRule::Euler { Vec::new() } else { map(|a| 1.0 / a) },
            d: d.to_vec(),
            widths: [channels, channels, d_state, d_state],
        })
    }
}

/// `[channels, d_state]` into `[blocks, d_state, BLOCK]`, missing channels zero.
fn to_blocks(channels: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; channels.next_multiple_of(BLOCK) * d_state];
    for (c, x) in x.chunks_exact(d_state).enumerate() {
        let block = &mut out[c / BLOCK * BLOCK * d_state..];
        x.iter().enumerate().for_each(|(n, &x)| block[n * BLOCK + c % BLOCK] = x);
    }
    out
}

fn from_blocks(channels: usize, d_state: usize, x: &[f32]) -> Vec<f32> {
    let at = |c: usize, n: usize| x[(c / BLOCK * d_state + n) * BLOCK + c % BLOCK];
    (0..channels).flat_map(|c| (0..d_state).map(move |n| at(c, n))).collect()
}

impl Recurrence for SelectiveScan {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.channels
    }

    fn planes(&self) -> Vec<usize> {
        vec![self.channels * self.d_state]
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        vec![vec![0.0; self.rate.len()]]
    }

    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]) {
        let &[x, dt, b, c] = inputs else { unreachable!("as many as widths") };
        let (out, isa, state) = (Shared(out.as_mut_ptr()), pool.isa(), Shared(planes[0].as_mut_ptr()));
        let grain = GRAIN / (rows * BLOCK * self.d_state).max(1);
        pool.split(self.channels.div_ceil(BLOCK), grain, |blocks| {
            let (out, state) = (out, &state);
            // SAFETY: the plane has these blocks, and no other task has them.
            let states = unsafe {
                let first = state.0.add(blocks.start * BLOCK * self.d_state);
                std::slice::from_raw_parts_mut(first, blocks.len() * BLOCK * self.d_state)
            };
            isa.run(Blocks { scan: self, blocks, rows, x, dt, b, c, states, out });
        });
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![from_blocks(self.channels, self.d_state, &planes[0])]
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        vec![to_blocks(self.channels, self.d_state, &planes[0])]
    }
}

/// All rows of some blocks of channels.
struct Blocks<'a> {
    scan: &'a SelectiveScan,
    blocks: Range<usize>,
    rows: usize,
    x: &'a [f32],
    dt: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    states: &'a mut [f32],
    out: Shared<f32>,
}

impl Kernel for Blocks<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let len = BLOCK * self.scan.d_state;
        // Tiles of rows outside: their pages stay known while all blocks pass.
        for first in (0..self.rows).step_by(TILE) {
            let rows = first..(first + TILE).min(self.rows);
            for (i, block) in self.blocks.clone().enumerate() {
                let at = i * len..(i + 1) * len;
                match (S::LANES, self.scan.rule) {
                    (16, InputRule::Euler) => self.tile::<S, 1, false>(s, block, at, rows.clone()),
                    (16, InputRule::ZeroOrderHold) => self.tile::<S, 1, true>(s, block, at, rows.clone()),
                    (8, InputRule::Euler) => self.tile::<S, 2, false>(s, block, at, rows.clone()),
                    (8, InputRule::ZeroOrderHold) => self.tile::<S, 2, true>(s, block, at, rows.clone()),
                    (_, InputRule::Euler) => self.tile::<S, 4, false>(s, block, at, rows.clone()),
                    (_, InputRule::ZeroOrderHold) => self.tile::<S, 4, true>(s, block, at, rows.clone()),
                }
            }
        }
    }
}

impl Blocks<'_> {
    /// A tile of rows of one block, which is `V` vectors wide and whose states are at `at`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "the arrays are registers, and walked together")]
    fn tile<S: Simd, const V: usize, const HOLD: bool>(
        &mut self,
        s: S,
        block: usize,
        at: Range<usize>,
        rows: Range<usize>,
    ) {
        let Blocks { scan, x, dt, b, c, ref mut states, out, .. } = *self;
        let (channels, d_state) = (scan.channels, scan.d_state);
        let state = &mut states[at];
        let first = block * BLOCK;
        let rates = &scan.rate[first * d_state..][..BLOCK * d_state];
        let inverses = if HOLD { &scan.inverse[first * d_state..][..BLOCK * d_state] } else { &[] };
        // The columns of each vector.
        let mut columns = [(0, 0); V];
        for v in 0..V {
            columns[v] = ((first + v * S::LANES).min(channels), (first + (v + 1) * S::LANES).min(channels));
        }
        let mut steps = [[s.splat(0.0); V]; TILE];
        let mut inputs = [[s.splat(0.0); V]; TILE];
        for (i, row) in rows.clone().enumerate() {
            for v in 0..V {
                let (from, to) = (row * channels + columns[v].0, row * channels + columns[v].1);
                inputs[i][v] = load_some(s, &x[from..to]);
                steps[i][v] = math::softplus(s, load_some(s, &dt[from..to]));
            }
        }
        for (i, row) in rows.enumerate() {
            let (steps, mut inputs) = (steps[i], inputs[i]);
            let mut sums = [s.splat(0.0); V];
            for v in 0..V {
                sums[v] = s.mul(load_some(s, &scan.d[columns[v].0..columns[v].1]), inputs[v]);
                inputs[v] = if HOLD { inputs[v] } else { s.mul(steps[v], inputs[v]) };
            }
            let (b, c) = (&b[row * d_state..][..d_state], &c[row * d_state..][..d_state]);
            for n in 0..d_state {
                let (b, c) = (s.splat(b[n]), s.splat(c[n]));
                let at = n * BLOCK;
                // SAFETY: the state, the rates and the inverses are `d_state` blocks, each V vectors.
                unsafe {
                    let mut decays = [s.splat(0.0); V];
                    for v in 0..V {
                        decays[v] = s.mul(steps[v], s.load(rates.as_ptr().add(at + v * S::LANES)));
                    }
                    let (scales, m) = math::exp2_parts(s, decays);
                    for v in 0..V {
                        let h = state.as_mut_ptr().add(at + v * S::LANES);
                        let mut input = s.mul(inputs[v], b);
                        if HOLD {
                            let less_one = s.fma(scales[v], m[v], s.sub(scales[v], s.splat(1.0)));
                            let inverse = s.load(inverses.as_ptr().add(at + v * S::LANES));
                            input = s.mul(input, s.mul(less_one, inverse));
                        }
                        let next = s.fma(s.fma(scales[v], m[v], scales[v]), s.load(h), input);
                        s.store(h, next);
                        sums[v] = s.fma(next, c, sums[v]);
                    }
                }
            }
            for v in 0..V {
                let (from, to) = columns[v];
                // SAFETY: the result has these columns of this row, and no other task writes them.
                let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(row * channels + from), to - from) };
                store_some(s, out, sums[v]);
            }
        }
    }
}

/// The state of one sequence: one plane, `[channels, d_state]`.
pub type ScanState = RecurrentState<SelectiveScan>;

impl ScanState {
    /// Takes in `x` and `dt` (before the softplus), `[rows, channels]`, with `b` and `c`, `[rows, d_state]`, and writes `y`
    /// into `out`, `[rows, channels]`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, x: &[f32], dt: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) -> Result<()> {
        self.advance(pool, &[x, dt, b, c], out)
    }
}
