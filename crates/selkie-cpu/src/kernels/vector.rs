//! Operations on rows of f32 that are not products.
#![allow(unsafe_code)]

use super::{Shared, Sink, math};
use crate::{
    Isa, Pool,
    error::{Error, Result, expect},
    simd::{Kernel, Simd},
};

/// Values in a task: some 10 us of work for the dearest function.
const GRAIN: usize = 16 << 10;

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// x sigmoid(x)
    Silu,
    /// The Gaussian error linear unit by its tanh approximation.
    GeluTanh,
    /// The Gaussian error linear unit by the error function.
    GeluErf,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// max(x, 0)
    Relu,
    /// max(x, 0)^2
    ReluSquared,
    /// x
    Identity,
}

#[inline(always)]
fn activation<S: Simd>(s: S, kind: Activation, x: S::F) -> S::F {
    let positive = |x| s.max(s.splat(0.0), x);
    match kind {
        Activation::Silu => math::silu(s, x),
        Activation::GeluTanh => math::gelu_tanh(s, x),
        Activation::GeluErf => math::gelu_erf(s, x),
        Activation::Sigmoid => math::sigmoid(s, x),
        Activation::Relu => positive(x),
        Activation::ReluSquared => s.mul(positive(x), positive(x)),
        Activation::Identity => x,
    }
}

/// Loads up to `LANES` values; zeros where there are no more.
#[inline(always)]
pub(super) fn load_some<S: Simd>(s: S, x: &[f32]) -> S::F {
    if x.len() >= S::LANES {
        // SAFETY: the slice is long enough.
        return unsafe { s.load(x.as_ptr()) };
    }
    let mut whole = [0f32; 16];
    whole[..x.len()].copy_from_slice(x);
    // SAFETY: no set has more than sixteen lanes.
    unsafe { s.load(whole.as_ptr()) }
}

/// Stores up to `LANES` values.
#[inline(always)]
pub(super) fn store_some<S: Simd>(s: S, out: &mut [f32], x: S::F) {
    if out.len() >= S::LANES {
        // SAFETY: the slice is long enough.
        return unsafe { s.store(out.as_mut_ptr(), x) };
    }
    let mut whole = [0f32; 16];
    // SAFETY: no set has more than sixteen lanes.
    unsafe { s.store(whole.as_mut_ptr(), x) };
    let len = out.len();
    out.copy_from_slice(&whole[..len]);
}

/// What an elementwise operation does to `x`, with `y` of the same length or empty.
#[derive(Clone, Copy)]
enum Each {
    Activate(Activation),
    Gate(Activation),
    ClampedSwiglu { alpha: f32, limit: f32 },
    AddScaled(f32),
    Multiply,
    Scale(f32),
}

struct Elementwise<'a>(Each, &'a mut [f32], &'a [f32]);

impl Kernel for Elementwise<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Elementwise(each, x, y) = self;
        // One loop per operation, so that the choice is made outside of it.
        match each {
            Each::Activate(kind) => walk(s, x, y, |x, _| activation(s, kind, x)),
            Each::Gate(kind) => match kind {
                Activation::Silu => walk(s, x, y, |x, y| s.mul(math::silu(s, x), y)),
                Activation::GeluTanh => walk(s, x, y, |x, y| s.mul(math::gelu_tanh(s, x), y)),
                _ => walk(s, x, y, |x, y| s.mul(activation(s, kind, x), y)),
            },
            Each::ClampedSwiglu { alpha, limit } => {
                let (alpha, top, bottom, one) = (s.splat(alpha), s.splat(limit), s.splat(-limit), s.splat(1.0));
                walk(s, x, y, |gate, up| {
                    let gate = s.min(top, gate);
                    let up = s.max(bottom, s.min(top, up));
                    s.mul(s.mul(gate, math::sigmoid(s, s.mul(alpha, gate))), s.add(up, one))
                })
            }
            Each::AddScaled(by) => walk(s, x, y, |x, y| s.fma(s.splat(by), y, x)),
            Each::Multiply => walk(s, x, y, |x, y| s.mul(x, y)),
            Each::Scale(by) => walk(s, x, y, |x, _| s.mul(s.splat(by), x)),
        }
    }
}

/// `x = f(x, y)` vector by vector; `y` is as long as `x`, or empty.
#[inline(always)]
fn walk<S: Simd>(s: S, x: &mut [f32], y: &[f32], f: impl Fn(S::F, S::F) -> S::F) {
    for i in (0..x.len()).step_by(S::LANES) {
        let end = (i + S::LANES).min(x.len());
        let y = if y.is_empty() { s.splat(0.0) } else { load_some(s, &y[i..end]) };
        let out = &mut x[i..end];
        let value = f(load_some(s, out), y);
        store_some(s, out, value);
    }
}

fn elementwise(pool: &Pool, each: Each, x: &mut [f32], y: &[f32]) {
    let (len, x, isa) = (x.len(), Shared(x.as_mut_ptr()), pool.isa());
    pool.split(len, GRAIN, |range| {
        let x = &x;
        // SAFETY: the ranges are within `x` and disjoint.
        let x = unsafe { std::slice::from_raw_parts_mut(x.0.add(range.start), range.len()) };
        isa.run(Elementwise(each, x, if y.is_empty() { y } else { &y[range] }));
    });
}

/// `x = f(x)`
pub fn activate(pool: &Pool, kind: Activation, x: &mut [f32]) {
    elementwise(pool, Each::Activate(kind), x, &[]);
}

/// `x = f(x) * up`
///
/// # Errors
/// Where the lengths differ.
pub fn gate(pool: &Pool, kind: Activation, x: &mut [f32], up: &[f32]) -> Result<()> {
    expect("up", "values", x.len(), up.len())?;
    elementwise(pool, Each::Gate(kind), x, up);
    Ok(())
}

/// `x = g * sigmoid(alpha * g) * (u + 1)` with `g = min(x, limit)` and `u` held within `limit` of 0 (gpt-oss)
///
/// # Errors
/// Where the lengths differ.
pub fn clamped_swiglu(pool: &Pool, alpha: f32, limit: f32, x: &mut [f32], up: &[f32]) -> Result<()> {
    expect("up", "values", x.len(), up.len())?;
    elementwise(pool, Each::ClampedSwiglu { alpha, limit }, x, up);
    Ok(())
}

/// `x = x + by * y`
///
/// # Errors
/// Where the lengths differ.
pub fn add_scaled(pool: &Pool, x: &mut [f32], y: &[f32], by: f32) -> Result<()> {
    expect("second term", "values", x.len(), y.len())?;
    elementwise(pool, Each::AddScaled(by), x, y);
    Ok(())
}

/// `x = x * y`
///
/// # Errors
/// Where the lengths differ.
pub fn multiply(pool: &Pool, x: &mut [f32], y: &[f32]) -> Result<()> {
    expect("second factor", "values", x.len(), y.len())?;
    elementwise(pool, Each::Multiply, x, y);
    Ok(())
}

/// `x = x * by`
pub fn scale(pool: &Pool, x: &mut [f32], by: f32) {
    elementwise(pool, Each::Scale(by), x, &[]);
}

/// Combines rows of a gate and its partner, both `[rows, width]`, and puts them into the sink from `column` on.
pub(super) fn gate_rows(
    isa: Isa,
    kind: Activation,
    gates: &mut [f32],
    ups: &[f32],
    width: usize,
    sink: Sink,
    column: usize,
) {
    isa.run(Elementwise(Each::Gate(kind), gates, ups));
    for (row, values) in gates.chunks_exact(width).enumerate() {
        // SAFETY: the sink has these rows and columns, and this task alone writes them.
        unsafe { sink.put(row, column, values) };
    }
}

/// Runs `kernel(first row, rows of x, rows of out)` over `[rows, columns]`, shared out.
fn by_rows<'a, K: Kernel<Output = ()>>(
    pool: &Pool,
    out: &'a mut [f32],
    columns: usize,
    kernel: impl Fn(std::ops::Range<usize>, &'a mut [f32]) -> K + Sync,
) {
    let (rows, out, isa) = (out.len().checked_div(columns).unwrap_or(0), Shared(out.as_mut_ptr()), pool.isa());
    pool.split(rows, GRAIN / columns.max(1), |range| {
        let out = &out;
        // SAFETY: the rows are within `out` and disjoint.
        let slice = unsafe { std::slice::from_raw_parts_mut(out.0.add(range.start * columns), range.len() * columns) };
        isa.run(kernel(range, slice));
    });
}

/// Divides each group of `group` values of `x`, `[rows, columns]`, by the root of its mean square plus `eps`, and
/// multiplies with `weight`, `[columns]`, where there is one. `group` is `columns` for the plain norm, and `head_dim`
/// with a weight of that length (repeated) for a norm over heads.
///
/// # Errors
/// Where the sizes do not fit.
pub fn rms_norm(
    pool: &Pool,
    x: &[f32],
    weight: Option<&[f32]>,
    columns: usize,
    group: usize,
    eps: f32,
    out: &mut [f32],
) -> Result<()> {
    expect("result", "values", x.len(), out.len())?;
    if group == 0 || columns == 0 || !columns.is_multiple_of(group) || !x.len().is_multiple_of(columns) {
        return Err(Error::Parameter("rows do not divide into the groups of a norm"));
    }
    let weight = weight.unwrap_or(&[]);
    if !weight.is_empty() && weight.len() != group {
        expect("norm weight", "values", columns, weight.len())?;
    }
    struct Norm<'a>(&'a [f32], &'a [f32], usize, f32, &'a mut [f32]);
    impl Kernel for Norm<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Norm(x, weight, group, eps, out) = self;
            let groups = weight.len() / group;
            for (i, (x, out)) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
                let mut squares = [s.splat(0.0); 2];
                for k in (0..group).step_by(2 * S::LANES) {
                    let a = load_some(s, &x[k..]);
                    squares[0] = s.fma(a, a, squares[0]);
                    let b = load_some(s, x.get(k + S::LANES..).unwrap_or(&[]));
                    squares[1] = s.fma(b, b, squares[1]);
                }
                let mean = s.sum(s.add(squares[0], squares[1])) / group as f32;
                let by = s.splat(1.0 / (mean + eps).sqrt());
                let weight = if groups == 0 { weight } else { &weight[i % groups * group..][..group] };
                for k in (0..group).step_by(S::LANES) {
                    let normed = s.mul(load_some(s, &x[k..]), by);
                    let value = if groups == 0 { normed } else { s.mul(normed, load_some(s, &weight[k..])) };
                    store_some(s, &mut out[k..], value);
                }
            }
        }
    }
    by_rows(pool, out, columns, |rows, out| {
        Norm(&x[rows.start * columns..rows.end * columns], weight, group, eps, out)
    });
    Ok(())
}

/// Replaces each row of `x`, `[rows, columns]`, by its softmax.
///
/// # Errors
/// Where `x` is not whole rows.
pub fn softmax(pool: &Pool, x: &mut [f32], columns: usize) -> Result<()> {
    expect("softmax", "values", x.len().checked_div(columns).unwrap_or(0) * columns, x.len())?;
    struct Softmax<'a>(&'a mut [f32], usize);
    impl Kernel for Softmax<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for row in self.0.chunks_exact_mut(self.1) {
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let shift = s.splat(-largest);
                walk(s, row, &[], |x, _| math::exp(s, s.add(x, shift)));
                // In f64: vocabularies are long.
                let sum: f64 = row.iter().map(|&x| x as f64).sum();
                let by = s.splat((1.0 / sum) as f32);
                walk(s, row, &[], |x, _| s.mul(x, by));
            }
        }
    }
    by_rows(pool, x, columns, |_, x| Softmax(x, columns));
    Ok(())
}

/// Which values of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Neighbours: 2i and 2i + 1.
    Interleaved,
    /// Halves: i and i + n/2 of the n rotated values.
    Halves,
}

/// Rotates the heads of `x`, `[rows, heads, head_dim]`, by angles whose cosines and sines are given for each row,
/// `[rows, rotated / 2]`; the values of a head from `rotated` on stay.
///
/// # Errors
/// Where the sizes do not fit.
pub fn rope(
    pool: &Pool,
    x: &mut [f32],
    heads: usize,
    head_dim: usize,
    cos: &[f32],
    sin: &[f32],
    pairing: Pairing,
) -> Result<()> {
    let columns = heads.saturating_mul(head_dim);
    let rows = x.len().checked_div(columns).unwrap_or(0);
    expect("rope", "values", rows * columns, x.len())?;
    expect("sines", "values", cos.len(), sin.len())?;
    let pairs = cos.len().checked_div(rows).unwrap_or(0);
    expect("cosines", "values", rows * pairs, cos.len())?;
    if 2 * pairs > head_dim {
        return Err(Error::Parameter("more rotated values than a head has"));
    }
    struct Rope<'a>(&'a mut [f32], usize, usize, usize, &'a [f32], &'a [f32], Pairing);
    impl Kernel for Rope<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Rope(x, columns, head_dim, pairs, cos, sin, pairing) = self;
            if pairs == 0 {
                return;
            }
            let tables = cos.chunks_exact(pairs).zip(sin.chunks_exact(pairs));
            for (x, (cos, sin)) in x.chunks_exact_mut(columns).zip(tables) {
                for head in x.chunks_exact_mut(head_dim) {
                    match pairing {
                        Pairing::Interleaved => {
                            for (pair, (c, n)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                                let [a, b] = *pair;
                                *pair = [a * c - b * n, a * n + b * c];
                            }
                        }
                        Pairing::Halves => {
                            let (first, second) = head[..2 * pairs].split_at_mut(pairs);
                            for i in (0..pairs).step_by(S::LANES) {
                                let (a, b) = (load_some(s, &first[i..]), load_some(s, &second[i..]));
                                let (c, n) = (load_some(s, &cos[i..]), load_some(s, &sin[i..]));
                                let minus = s.sub(s.splat(0.0), n);
                                store_some(s, &mut first[i..], s.fma(b, minus, s.mul(a, c)));
                                store_some(s, &mut second[i..], s.fma(a, n, s.mul(b, c)));
                            }
                        }
                    }
                }
            }
        }
    }
    by_rows(pool, x, columns, |rows, x| {
        let table = rows.start * pairs..rows.end * pairs;
        Rope(x, columns, head_dim, pairs, &cos[table.clone()], &sin[table], pairing)
    });
    Ok(())
}
