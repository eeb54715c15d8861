//! What is done to each head, rank or row by itself.
#![allow(unsafe_code)]

use super::{
    Shared, math,
    vector::{load_some, store_some},
};
use crate::{
    Pool,
    error::{Error, Result, expect},
    simd::{Kernel, Simd},
};

/// Values of a result in a task.
const GRAIN: usize = 16 << 10;

/// Calls `task(row, values of the row)` for all rows of `out`, shared out.
fn by_rows(pool: &Pool, out: &mut [f32], columns: usize, task: impl Fn(usize, &mut [f32]) + Sync) {
    let (rows, out) = (out.len() / columns, Shared(out.as_mut_ptr()));
    pool.split(rows, GRAIN / columns, |rows| {
        let out = &out;
        for row in rows {
            // SAFETY: the rows are within `out` and disjoint.
            task(row, unsafe { std::slice::from_raw_parts_mut(out.0.add(row * columns), columns) });
        }
    });
}

/// `[a | b]` for each head: `a`, `[rows, heads * a_dim]`, and `b`, `[rows, heads * b_dim]`, into `out`, `[rows, heads *
/// (a_dim + b_dim)]`.
///
/// # Errors
/// Where the sizes do not fit.
pub fn join_heads(pool: &Pool, a: &[f32], b: &[f32], a_dim: usize, b_dim: usize, out: &mut [f32]) -> Result<()> {
    if a_dim == 0 || b_dim == 0 {
        return Err(Error::Parameter("heads of no width cannot be joined"));
    }
    let heads = a.len() / a_dim;
    expect("first parts of heads", "values", heads * a_dim, a.len())?;
    expect("second parts of heads", "values", heads * b_dim, b.len())?;
    expect("joined heads", "values", heads * (a_dim + b_dim), out.len())?;
    by_rows(pool, out, a_dim + b_dim, |head, out| {
        let (first, second) = out.split_at_mut(a_dim);
        first.copy_from_slice(&a[head * a_dim..][..a_dim]);
        second.copy_from_slice(&b[head * b_dim..][..b_dim]);
    });
    Ok(())
}

/// `x[r, :] = sigmoid(gates[r]) x[r, :]` for `x`, `[rows, columns]`.
///
/// # Errors
/// Where the sizes do not fit.
pub fn scale_rows(pool: &Pool, x: &mut [f32], gates: &[f32], columns: usize) -> Result<()> {
    if columns == 0 {
        return Err(Error::Parameter("rows of no columns cannot be scaled"));
    }
    expect("gates of rows", "values", x.len() / columns, gates.len())?;
    expect("rows", "values", gates.len() * columns, x.len())?;
    struct Scale<'a>(&'a mut [f32], f32);
    impl Kernel for Scale<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let by = math::sigmoid(s, s.splat(self.1));
            for x in self.0.chunks_mut(S::LANES) {
                let scaled = s.mul(by, load_some(s, x));
                store_some(s, x, scaled);
            }
        }
    }
    by_rows(pool, x, columns, |row, x| pool.isa().run(Scale(x, gates[row])));
    Ok(())
}

/// The sizes of heads with several ranks.
struct Ranks {
    rows: usize,
    heads: usize,
    rank: usize,
}

impl Ranks {
    /// From `few`, `[rows, heads, head_dim]`, `weight`, `[heads, rank, head_dim]`, and `many`, `[rows, heads, rank,
    /// head_dim]`.
    fn new(few: usize, weight: usize, many: usize, heads: usize, head_dim: usize) -> Result<Self> {
        if heads == 0 || head_dim == 0 {
            return Err(Error::Parameter("ranks of no heads, or of heads of no width"));
        }
        let rows = few / (heads * head_dim);
        let rank = weight / (heads * head_dim);
        expect("heads without ranks", "values", rows * heads * head_dim, few)?;
        expect("weights of ranks", "values", rank * heads * head_dim, weight)?;
        expect("heads with ranks", "values", rows * heads * rank * head_dim, many)?;
        Ok(Self { rows, heads, rank })
    }
}

/// `out[t, h, r, :] = weight[h, r, :] x[t, h, :]`: `x`, `[rows, heads * head_dim]`, and `weight`, `[heads, rank, head_dim]`,
/// into `out`, `[rows, heads, rank, head_dim]`.
///
/// # Errors
/// Where the sizes do not fit.
pub fn rank_expand(
    pool: &Pool,
    x: &[f32],
    weight: &[f32],
    heads: usize,
    head_dim: usize,
    out: &mut [f32],
) -> Result<()> {
    let Ranks { rows, heads, rank } = Ranks::new(x.len(), weight.len(), out.len(), heads, head_dim)?;
    if rows == 0 || rank == 0 {
        return Ok(());
    }
    struct Expand<'a>(&'a [f32], &'a [f32], &'a mut [f32]);
    impl Kernel for Expand<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Expand(x, weight, out) = self;
            for (weight, out) in weight.chunks_exact(x.len()).zip(out.chunks_exact_mut(x.len())) {
                for i in (0..x.len()).step_by(S::LANES) {
                    store_some(s, &mut out[i..], s.mul(load_some(s, &x[i..]), load_some(s, &weight[i..])));
                }
            }
        }
    }
    let len = rank * head_dim;
    by_rows(pool, out, len, |at, out| {
        let weight = &weight[at % heads * len..][..len];
        pool.isa().run(Expand(&x[at * head_dim..][..head_dim], weight, out));
    });
    Ok(())
}

/// `out[t, h, :]` is the sum over r of `weight[h, r, :] x[t, h, r, :]`: the sizes are those of [`rank_expand`].
///
/// # Errors
/// Where the sizes do not fit.
pub fn rank_reduce(
    pool: &Pool,
    x: &[f32],
    weight: &[f32],
    heads: usize,
    head_dim: usize,
    out: &mut [f32],
) -> Result<()> {
    let Ranks { heads, rank, .. } = Ranks::new(out.len(), weight.len(), x.len(), heads, head_dim)?;
    struct Reduce<'a>(&'a [f32], &'a [f32], &'a mut [f32]);
    impl Kernel for Reduce<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Reduce(x, weight, out) = self;
            let len = out.len();
            for i in (0..len).step_by(S::LANES) {
                let mut sum = s.splat(0.0);
                for (x, weight) in x.chunks_exact(len).zip(weight.chunks_exact(len)) {
                    sum = s.fma(load_some(s, &x[i..]), load_some(s, &weight[i..]), sum);
                }
                store_some(s, &mut out[i..], sum);
            }
        }
    }
    let len = rank * head_dim;
    by_rows(pool, out, head_dim, |at, out| {
        let weight = &weight[at % heads * len..][..len];
        pool.isa().run(Reduce(&x[at * len..][..len], weight, out));
    });
    Ok(())
}
