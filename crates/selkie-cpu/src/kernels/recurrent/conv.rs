//! Short causal convolutions of each channel by itself.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use super::{MAX_REWIND, beyond_reach, rows_of};
use crate::{
    Pool,
    error::{Error, Result, expect},
    kernels::{
        Shared, math,
        vector::{load_some, store_some},
    },
    simd::{Kernel, Simd},
};

/// The widest convolution.
const MAX_WIDTH: usize = 16;

/// Multiplications in a task: some 5 us of work.
const GRAIN: usize = 64 << 10;

/// A causal convolution over time of each channel by itself, maybe with SiLU behind it.
#[derive(Clone, Debug)]
pub struct CausalConv {
    channels: usize,
    width: usize,
    /// `[width, channels]`: neighbouring channels are computed together.
    weight: Vec<f32>,
    /// Empty where there is none.
    bias: Vec<f32>,
    silu: bool,
}

impl CausalConv {
    /// `weight` is `[channels, width]`, the last tap meets the current token; `bias` is `[channels]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or the width is none or above 16.
    pub fn new(channels: usize, width: usize, weight: &[f32], bias: Option<&[f32]>, silu: bool) -> Result<Self> {
        if width == 0 || width > MAX_WIDTH || channels == 0 {
            return Err(Error::Parameter("a convolution has 1 to 16 taps, and channels"));
        }
        expect("convolution weight", "values", channels.saturating_mul(width), weight.len())?;
        expect("convolution bias", "values", channels, bias.map_or(channels, <[f32]>::len))?;
        let taps = (0..width).flat_map(|k| weight.iter().skip(k).step_by(width));
        Ok(Self { channels, width, weight: taps.copied().collect(), bias: bias.unwrap_or(&[]).to_vec(), silu })
    }

    fn window(&self) -> usize {
        (self.width - 1) * self.channels
    }

    /// `past` is the window before `x`, `[width - 1, channels]`.
    fn run(&self, pool: &Pool, past: &[f32], x: &[f32], out: &mut [f32]) {
        let (rows, out, isa) = (x.len() / self.channels, Shared(out.as_mut_ptr()), pool.isa());
        pool.split(rows, GRAIN / (self.channels * self.width) + 1, |rows| {
            let out = &out;
            // SAFETY: the rows are within the result, and no other task's.
            let out = unsafe {
                let first = out.0.add(rows.start * self.channels);
                std::slice::from_raw_parts_mut(first, rows.len() * self.channels)
            };
            isa.run(Convolve { conv: self, past, x, rows, out });
        });
    }
}

struct Convolve<'a> {
    conv: &'a CausalConv,
    past: &'a [f32],
    x: &'a [f32],
    rows: Range<usize>,
    out: &'a mut [f32],
}

impl Kernel for Convolve<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Convolve { conv: &CausalConv { channels, width, ref weight, ref bias, silu }, past, x, rows, out } = self;
        for (row, out) in rows.zip(out.chunks_exact_mut(channels)) {
            let mut inputs = [x; MAX_WIDTH];
            for (k, input) in inputs[..width].iter_mut().enumerate() {
                let (from, at) = if row + k + 1 >= width { (x, row + k + 1 - width) } else { (past, row + k) };
                *input = &from[at * channels..][..channels];
            }
            for c in (0..channels).step_by(S::LANES) {
                let end = (c + S::LANES).min(channels);
                let mut sum = if bias.is_empty() { s.splat(0.0) } else { load_some(s, &bias[c..end]) };
                for (k, input) in inputs[..width].iter().enumerate() {
                    let tap = load_some(s, &weight[k * channels + c..k * channels + end]);
                    sum = s.fma(tap, load_some(s, &input[c..end]), sum);
                }
                store_some(s, &mut out[c..end], if silu { math::silu(s, sum) } else { sum });
            }
        }
    }
}

/// The last inputs of one sequence: the window of its next token, and what rewinding brings back into it.
#[derive(Clone, Debug)]
pub struct ConvState {
    op: Arc<CausalConv>,
    /// `[some, channels]`, oldest first: the window, before it what rewinding may need.
    inputs: Vec<f32>,
}

impl ConvState {
    /// The state before the first token.
    pub fn new(op: Arc<CausalConv>) -> Self {
        Self { inputs: vec![0.0; op.window()], op }
    }

    /// Convolves `x`, `[rows, channels]`, into `out`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, x: &[f32], out: &mut [f32]) -> Result<()> {
        rows_of("convolution input", x, self.op.channels)?;
        expect("convolution result", "values", x.len(), out.len())?;
        self.op.run(pool, &self.inputs[self.inputs.len() - self.op.window()..], x, out);
        // Shortened now and then only, so that a token costs a row's copy.
        let kept = self.op.window() + MAX_REWIND * self.op.channels;
        if x.len() >= kept {
            self.inputs.clear();
            self.inputs.extend_from_slice(&x[x.len() - kept..]);
        } else {
            if self.inputs.len() + x.len() > kept + MAX_REWIND * self.op.channels {
                let spare = (self.inputs.len() + x.len() - kept).min(self.inputs.len());
                self.inputs.drain(..spare);
            }
            self.inputs.extend_from_slice(x);
        }
        Ok(())
    }

    /// How many tokens [`rewind`](Self::rewind) can forget now: [`MAX_REWIND`] before the furthest token it was at, if so
    /// many came since the state was made or set.
    pub fn reach(&self) -> usize {
        ((self.inputs.len() - self.op.window()) / self.op.channels).min(MAX_REWIND)
    }

    /// Forgets the last `n` tokens.
    ///
    /// # Errors
    /// Where they are more than [`reach`](Self::reach).
    pub fn rewind(&mut self, n: usize) -> Result<()> {
        let reach = self.reach();
        if n > reach {
            return Err(beyond_reach(n, reach));
        }
        self.inputs.truncate(self.inputs.len() - n * self.op.channels);
        Ok(())
    }

    /// The state as it is kept: the window, `[width - 1, channels]`, oldest first.
    pub fn planes(&self) -> Vec<Vec<f32>> {
        vec![self.inputs[self.inputs.len() - self.op.window()..].to_vec()]
    }

    /// Takes up a state from [`planes`](Self::planes).
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn set_planes(&mut self, planes: &[Vec<f32>]) -> Result<()> {
        expect("convolution state", "planes", 1, planes.len())?;
        expect("convolution window", "values", self.op.window(), planes[0].len())?;
        self.inputs.clone_from(&planes[0]);
        Ok(())
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        4 * self.inputs.capacity()
    }
}
