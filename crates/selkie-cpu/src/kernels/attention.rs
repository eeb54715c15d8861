//! Causal attention over a cache, in blocks of queries and keys with a running softmax: no matrix of all scores.
//!
//! The heads which share their keys and values are computed together. A block of keys is transposed into panels, so that
//! both products are those of the f32 tile kernel.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::ops::Range;

use super::{
    Shared,
    float::{Tile, tile},
    kv_cache::KvCache,
    math,
    scratch::with_scratch,
};
use crate::{
    Pool,
    error::{Error, Result, expect},
    simd::{Kernel, Simd},
};

/// Keys of a block: its panels and values fit the second-level cache with the queries of a task.
const KEYS: usize = 64;

/// Most rows of queries in a task.
const ROWS: usize = 32;

/// Least keys worth a task of their own, when few queries leave threads without work.
const SPLIT: usize = 128;

/// What kind of attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Heads of queries, a multiple of the cache's heads: neighbours share.
    pub heads: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// How many positions a query sees, its own among them.
    pub window: Option<usize>,
    /// A further score per head which takes its share of the softmax and has no value, `[heads]`.
    pub sinks: Option<&'a [f32]>,
}

/// Attention of `q`, `[rows, heads * k_dim]`, at the positions from `past` on, over the keys up to each row's own position
/// (which are in the cache already) into `out`, `[rows, heads * v_dim]`.
///
/// # Errors
/// Where sizes do not fit, or the cache ends before the last row's position.
pub fn attention(
    pool: &Pool,
    kind: &Attention,
    q: &[f32],
    cache: &KvCache,
    past: usize,
    out: &mut [f32],
) -> Result<()> {
    if kind.heads == 0 || cache.heads() == 0 || !kind.heads.is_multiple_of(cache.heads()) {
        return Err(Error::Parameter("heads of queries are not a multiple of those of the cache"));
    }
    if kind.window == Some(0) {
        return Err(Error::Parameter("an attention window of no positions"));
    }
    let (k_dim, v_dim) = (cache.k_dim(), cache.v_dim());
    let rows = q.len().checked_div(kind.heads * k_dim).unwrap_or(0);
    expect("queries", "values", rows * kind.heads * k_dim, q.len())?;
    expect("result", "values", rows * kind.heads * v_dim, out.len())?;
    expect("sinks", "values", kind.heads, kind.sinks.map_or(kind.heads, <[f32]>::len))?;
    let end = past.checked_add(rows).ok_or(Error::Parameter("positions overflow"))?;
    if end > cache.len() {
        return Err(Error::Size { operand: "cache", unit: "positions", wanted: end, found: cache.len() });
    }
    if rows == 0 || v_dim == 0 {
        return Ok(());
    }

    // Blocks of queries so that every thread gets some; with few queries the keys are split too.
    let some = (rows * cache.heads()).div_ceil(4 * pool.threads());
    let block = some.clamp(4, ROWS).min(rows);
    let blocks = rows.div_ceil(block);
    let seen = kind.window.map_or(end, |window| end.min(window + block - 1));
    let tasks = blocks * cache.heads();
    let splits =
        if tasks >= 4 * pool.threads() { 1 } else { (seen / SPLIT).clamp(1, (8 * pool.threads()).div_ceil(tasks)) };
    let group = kind.heads / cache.heads();
    let job = Job { kind, q, cache, past, group };
    let results = Shared(out.as_mut_ptr());
    let (isa, width) = (pool.isa(), Sizes::new(k_dim, v_dim, block * group).v_stride + 2);
    let mut partial = vec![0f32; if splits > 1 { splits * rows * kind.heads * width } else { 0 }];
    let partials = Shared(partial.as_mut_ptr());
    // The last blocks see most keys, and begin first.
    pool.run(tasks * splits, |task| {
        let (results, partials) = (&results, &partials);
        let (task, split) = (task / splits, task % splits);
        let (block_index, head) = (blocks - 1 - task / cache.heads(), task % cache.heads());
        let first = block_index * block;
        let rows = first..(first + block).min(rows);
        let all = job.keys(&rows);
        let piece = all.len().div_ceil(splits);
        let start = (all.start + split * piece).min(all.end);
        let keys = start..(start + piece).min(all.end);
        let sizes = Sizes::new(k_dim, v_dim, rows.len() * group);
        with_scratch(sizes.total(), |scratch| {
            isa.run(Flash { job: &job, head, rows: rows.clone(), keys, sizes, scratch: &mut *scratch });
            let state = &scratch[..sizes.queries * (sizes.v_stride + 2)];
            for (i, state) in state.chunks_exact(sizes.v_stride + 2).enumerate() {
                let (row, query_head) = (rows.start + i / group, head * group + i % group);
                let at = row * kind.heads + query_head;
                // SAFETY: this task alone writes this head of this row; both results have room for all of them.
                unsafe {
                    if splits == 1 {
                        let out = std::slice::from_raw_parts_mut(results.0.add(at * v_dim), v_dim);
                        finish(kind, query_head, &[state], out);
                    } else {
                        let at = (at * splits + split) * width;
                        std::slice::from_raw_parts_mut(partials.0.add(at), width).copy_from_slice(state);
                    }
                }
            }
        });
    });
    if splits > 1 {
        for (at, out) in out.chunks_exact_mut(v_dim).enumerate() {
            let mut states: Vec<&[f32]> = Vec::with_capacity(splits);
            states.extend(partial[at * splits * width..][..splits * width].chunks_exact(width));
            finish(kind, at % kind.heads, &states, out);
        }
    }
    Ok(())
}

/// Joins states of one query, `(largest score, sum of weights, weighted values)` each over its keys, and the sink.
fn finish(kind: &Attention, head: usize, states: &[&[f32]], out: &mut [f32]) {
    let sink = kind.sinks.map_or(f32::NEG_INFINITY, |sinks| sinks[head]);
    let largest = states.iter().fold(sink, |m, state| m.max(state[0]));
    let weight = |score: f32| if score == f32::NEG_INFINITY { 0.0 } else { (score - largest).exp() };
    let sum = states.iter().fold(weight(sink), |sum, state| sum + weight(state[0]) * state[1]);
    out.fill(0.0);
    for state in states {
        let by = weight(state[0]) / sum;
        for (out, value) in out.iter_mut().zip(&state[2..]) {
            *out += by * value;
        }
    }
}

/// The operands of all tasks.
struct Job<'a> {
    kind: &'a Attention<'a>,
    q: &'a [f32],
    cache: &'a KvCache,
    past: usize,
    /// Heads of queries that share a head of keys.
    group: usize,
}

impl Job<'_> {
    /// The keys which a row sees.
    #[inline(always)]
    fn keys_of(&self, row: usize) -> Range<usize> {
        let end = self.past + row + 1;
        self.kind.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// The keys which any of the rows sees.
    fn keys(&self, rows: &Range<usize>) -> Range<usize> {
        self.keys_of(rows.start).start..self.keys_of(rows.end - 1).end
    }
}

/// How a task's memory is divided.
#[derive(Clone, Copy)]
struct Sizes {
    queries: usize,
    /// Values of a key, rounded up to eight.
    k_stride: usize,
    /// Values of a value, rounded up to two vectors of any set.
    v_stride: usize,
}

impl Sizes {
    fn new(k_dim: usize, v_dim: usize, queries: usize) -> Self {
        Self { queries, k_stride: k_dim.next_multiple_of(8), v_stride: v_dim.next_multiple_of(32) }
    }

    /// States, queries, scores, panels of keys, eight keys, values.
    fn parts(&self) -> [usize; 6] {
        [
            self.queries * (self.v_stride + 2),
            self.queries * self.k_stride,
            self.queries * KEYS,
            KEYS * self.k_stride,
            8 * self.k_stride,
            KEYS * self.v_stride,
        ]
    }

    fn total(&self) -> usize {
        self.parts().iter().sum()
    }
}

/// One head of keys, some rows, some keys. Leaves a state per query at the start of the scratch memory.
struct Flash<'a> {
    job: &'a Job<'a>,
    head: usize,
    rows: Range<usize>,
    keys: Range<usize>,
    sizes: Sizes,
    scratch: &'a mut [f32],
}

impl Kernel for Flash<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Flash { job, head, rows, keys, sizes, scratch } = self;
        let Job { kind, q, cache, group, .. } = *job;
        let (k_dim, v_dim) = (cache.k_dim(), cache.v_dim());
        let Sizes { queries, k_stride, v_stride } = sizes;
        let [a, b, c, d, e, _] = sizes.parts();
        let (states, rest) = scratch.split_at_mut(a);
        let (scaled, rest) = rest.split_at_mut(b);
        let (scores, rest) = rest.split_at_mut(c);
        let (panels, rest) = rest.split_at_mut(d);
        let (eight, values) = rest.split_at_mut(e);

        for state in states.chunks_exact_mut(v_stride + 2) {
            state.fill(0.0);
            state[0] = f32::NEG_INFINITY;
        }
        for (i, scaled) in scaled.chunks_exact_mut(k_stride).enumerate() {
            let at = ((rows.start + i / group) * kind.heads + head * group + i % group) * k_dim;
            for (scaled, q) in scaled.iter_mut().zip(&q[at..at + k_dim]) {
                *scaled = q * kind.scale;
            }
        }
        // Padding of values is multiplied with, and its results are not used; it must only be finite.
        values.fill(0.0);
        let mut out = Tile::new();
        let wide = 2 * S::LANES;
        for first in keys.clone().step_by(KEYS) {
            let count = KEYS.min(keys.end - first);
            let base = head * cache.capacity() + first;

            // Keys, transposed into panels [k_dim, wide].
            for from in (0..count).step_by(8) {
                for (r, row) in eight.chunks_exact_mut(k_stride).enumerate() {
                    // Missing keys repeat the last; their scores are not used.
                    let key = (from + r).min(count - 1);
                    cache.k.read(s, (base + key) * k_dim, &mut row[..k_dim]);
                }
                let panel = (from / wide) * wide * k_stride + from % wide;
                for k in (0..k_stride).step_by(8) {
                    let mut block = [s.splat_b(0); 8];
                    // SAFETY: `eight` holds eight rows of k_stride, the panels KEYS.
                    unsafe {
                        for r in 0..8 {
                            block[r] = s.load_b(eight.as_ptr().add(r * k_stride + k).cast());
                        }
                        s.interleave(block, panels.as_mut_ptr().add(panel + k * wide).cast(), 4 * wide);
                    }
                }
            }
            for query in (0..queries).step_by(S::FLOAT_TILE) {
                let many = S::FLOAT_TILE.min(queries - query);
                for key in (0..count).step_by(wide) {
                    // SAFETY: the queries and the panel are there.
                    unsafe {
                        let x = scaled.as_ptr().add(query * k_stride);
                        tile(s, many, k_dim, x, k_stride, panels.as_ptr().add(key * k_stride), wide, &mut out);
                    }
                    for t in 0..many {
                        scores[(query + t) * KEYS + key..][..wide].copy_from_slice(&out.0[t][..wide]);
                    }
                }
            }

            // Scores to weights, and what was summed before to the new largest score.
            for i in 0..queries {
                let seen = job.keys_of(rows.start + i / group);
                let start = seen.start.saturating_sub(first).min(count);
                let end = seen.end.saturating_sub(first).min(count);
                let scores = &mut scores[i * KEYS..][..KEYS];
                let state = &mut states[i * (v_stride + 2)..][..v_stride + 2];
                weigh(s, kind.softcap, scores, start..end, state);
            }

            // Weights times values, read in place where they are f32 in whole vectors.
            let in_place = if v_dim.is_multiple_of(wide) { cache.v.as_f32(base * v_dim) } else { None };
            let (panel, stride) = match in_place {
                Some(values) => (&values[..count * v_dim], v_dim),
                None => {
                    for (key, row) in values.chunks_exact_mut(v_stride).take(count).enumerate() {
                        cache.v.read(s, (base + key) * v_dim, &mut row[..v_dim]);
                    }
                    (&*values, v_stride)
                }
            };
            for query in (0..queries).step_by(S::FLOAT_TILE) {
                let many = S::FLOAT_TILE.min(queries - query);
                for column in (0..v_dim).step_by(wide) {
                    // SAFETY: the weights are there, and `count` rows of values from this column on.
                    unsafe {
                        let x = scores.as_ptr().add(query * KEYS);
                        tile(s, many, count, x, KEYS, panel.as_ptr().add(column), stride, &mut out);
                    }
                    for t in 0..many {
                        let state = &mut states[(query + t) * (v_stride + 2) + 2 + column..][..wide];
                        state.iter_mut().zip(&out.0[t][..wide]).for_each(|(sum, value)| *sum += value);
                    }
                }
            }
        }
    }
}

/// Turns the scores of the keys in `seen` into weights relative to the largest score so far, all others into 0, and
/// brings `state` (largest score, sum of weights, weighted values) there.
#[inline(always)]
fn weigh<S: Simd>(s: S, softcap: Option<f32>, scores: &mut [f32], seen: Range<usize>, state: &mut [f32]) {
    if seen.is_empty() {
        scores.fill(0.0);
        return;
    }
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    // SAFETY: `scores` are KEYS values, whole vectors; the weighted values are whole vectors too.
    unsafe {
        let p = scores.as_mut_ptr();
        let mut largest = s.splat(state[0]);
        for i in (0..KEYS).step_by(S::LANES) {
            let mut x = s.load(p.add(i));
            if let Some(cap) = softcap {
                // cap tanh(x / cap), where tanh(u) is 1 - 2 / (e^2u + 1). What is not seen must stay at minus infinity.
                let e = math::exp(s, s.mul(x, s.splat(2.0 / cap)));
                let tanh = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
                x = s.mul(s.splat(cap), tanh);
                s.store(p.add(i), x);
            }
            largest = s.max(x, largest);
        }
        if softcap.is_some() {
            scores[..seen.start].fill(f32::NEG_INFINITY);
            scores[seen.end..].fill(f32::NEG_INFINITY);
        }
        let p = scores.as_mut_ptr();
        let largest = s.reduce_max(largest);
        let mut sum = s.splat(0.0);
        for i in (0..KEYS).step_by(S::LANES) {
            let weight = math::exp(s, s.sub(s.load(p.add(i)), s.splat(largest)));
            s.store(p.add(i), weight);
            sum = s.add(sum, weight);
        }
        let before = if state[0] == f32::NEG_INFINITY { 0.0 } else { (state[0] - largest).exp() };
        state[1] = state[1] * before + s.sum(sum);
        state[0] = largest;
        if before != 1.0 {
            state[2..].iter_mut().for_each(|value| *value *= before);
        }
    }
}
