//! Products in f32: of float weights, and of any weights in the exact mode, decoded piece by piece.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::ops::Range;

use selkie_formats::DType;

use super::{Sink, decode::decode, gemv::AHEAD, scratch::with_scratch};
use crate::{
    Isa,
    matrix::Part,
    simd::{Kernel, Simd},
};

/// Values of a row that are decoded at once: a whole number of blocks of any type, and a panel of them fits the
/// first-level cache.
const DEPTH: usize = 256;

/// Most values of a row that a dot product decodes at once.
const ROW_DEPTH: usize = 1024;

/// Most rows of a panel, over all instruction sets.
const MOST_ROWS: usize = 32;

/// A product of rows `weights` of a part with f32 activations `[rows, columns]`, into columns of the result from `column` on.
pub(crate) struct Float<'a> {
    pub(crate) part: &'a Part,
    pub(crate) weights: Range<usize>,
    pub(crate) x: &'a [f32],
    pub(crate) columns: usize,
    pub(crate) sink: Sink,
    pub(crate) column: usize,
}

impl Float<'_> {
    /// By dot products, which suits few rows of activations.
    pub(crate) fn by_dots(self, isa: Isa) {
        let plain = matches!(self.part.dtype, DType::F32 | DType::F16 | DType::BF16);
        with_scratch(if plain { 0 } else { ROW_DEPTH }, |scratch| isa.run(Dots(self, scratch)));
    }

    /// By panels of weights, `[columns, rows]` in f32, which suits many.
    pub(crate) fn by_panels(self, isa: Isa) {
        with_scratch((MOST_ROWS + 8) * DEPTH, |scratch| isa.run(Panels(self, scratch)));
    }
}

// The scratch memory is taken outside of the kernels: closures inside may be left out of line, where they lack the
// target features.
struct Dots<'a>(Float<'a>, &'a mut [f32]);
struct Panels<'a>(Float<'a>, &'a mut [f32]);

/// Encodings which load straight into a vector.
trait Load {
    const BYTES: usize;
    /// # Safety
    /// `p` is valid for `LANES` values.
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F;
    /// # Safety
    /// `p` is valid for one value.
    unsafe fn one<S: Simd>(s: S, p: *const u8) -> f32;
}

struct F32;
impl Load for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(_s: S, p: *const u8) -> f32 {
        // SAFETY: the caller's.
        unsafe { p.cast::<f32>().read_unaligned() }
    }
}

struct F16;
impl Load for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_f16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(s: S, p: *const u8) -> f32 {
        // SAFETY: the caller's.
        s.f16(unsafe { p.cast::<u16>().read_unaligned() })
    }
}

struct Bf16;
impl Load for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn one<S: Simd>(_s: S, p: *const u8) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits((unsafe { p.cast::<u16>().read_unaligned() } as u32) << 16)
    }
}

/// `R` rows of weights, `stride` bytes apart, times one row of activations.
///
/// # Safety
/// The rows are valid for `x.len()` values.
#[inline(always)]
unsafe fn dots<S: Simd, L: Load, const R: usize>(s: S, w: *const u8, stride: usize, x: &[f32]) -> [f32; R] {
    let whole = x.len() / S::LANES * S::LANES;
    let mut acc = [s.splat(0.0); R];
    let mut rest = [0f32; R];
    // SAFETY: the caller's; whole vectors first, then value by value.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            let x = s.load(x.as_ptr().add(i));
            // The next rows, as in `Gemv`.
            let ahead = w.wrapping_add(R * stride + i * R * L::BYTES + AHEAD);
            for line in (0..R * S::LANES * L::BYTES).step_by(64) {
                s.prefetch(ahead.wrapping_add(line));
            }
            for r in 0..R {
                acc[r] = s.fma(L::load(s, w.add(r * stride + i * L::BYTES)), x, acc[r]);
            }
        }
        for i in whole..x.len() {
            for r in 0..R {
                rest[r] += L::one(s, w.add(r * stride + i * L::BYTES)) * x[i];
            }
        }
    }
    std::array::from_fn(|r| s.sum(acc[r]) + rest[r])
}

impl Kernel for Dots<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.0.part.dtype {
            DType::F32 => self.stream::<S, F32>(s),
            DType::F16 => self.stream::<S, F16>(s),
            DType::BF16 => self.stream::<S, Bf16>(s),
            _ => self.decoded(s),
        }
    }
}

impl Dots<'_> {
    #[inline(always)]
    fn stream<S: Simd, L: Load>(self, s: S) {
        let Float { part, weights, x, columns, sink, column } = self.0;
        let mut row = weights.start;
        while row < weights.end {
            let many = 2 * S::DOTS;
            let whole = row + many <= weights.end;
            for (token, x) in x.chunks_exact(columns).enumerate() {
                // SAFETY: the rows are the part's and as long as those of the activations; the sink has these columns.
                unsafe {
                    let w = part.bytes.as_ptr().add(row * part.row_bytes);
                    let column = column + row - weights.start;
                    if whole && S::DOTS == 4 {
                        sink.put(token, column, &dots::<S, L, 8>(s, w, part.row_bytes, x));
                    } else if whole {
                        sink.put(token, column, &dots::<S, L, 4>(s, w, part.row_bytes, x));
                    } else {
                        sink.put(token, column, &dots::<S, L, 1>(s, w, part.row_bytes, x));
                    }
                }
            }
            row += if whole { many } else { 1 };
        }
    }

    #[inline(always)]
    fn decoded<S: Simd>(self, s: S) {
        let Dots(Float { part, weights, x, columns, sink, column }, scratch) = self;
        let block = (part.dtype.block_len(), part.dtype.block_bytes());
        for row in weights.clone() {
            for from in (0..columns).step_by(ROW_DEPTH) {
                let to = (from + ROW_DEPTH).min(columns);
                let piece = &mut scratch[..to - from];
                decode(s, part.dtype, part.piece(block, row, from, to), piece);
                let sink = if from == 0 { sink } else { sink.further() };
                for (token, x) in x.chunks_exact(columns).enumerate() {
                    // SAFETY: `piece` is as long as the piece of `x`; the sink has this column.
                    unsafe {
                        let value = dots::<S, F32, 1>(s, piece.as_ptr().cast(), 0, &x[from..to]);
                        sink.put(token, column + row - weights.start, &value);
                    }
                }
            }
        }
    }
}

impl Kernel for Panels<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Panels(Float { part, weights, x, columns, sink, column }, scratch) = self;
        let rows = 2 * S::LANES;
        let block = (part.dtype.block_len(), part.dtype.block_bytes());
        let (panel, decoded) = scratch.split_at_mut(MOST_ROWS * DEPTH);
        for start in weights.clone().step_by(rows) {
            let valid = rows.min(weights.end - start);
            for from in (0..columns).step_by(DEPTH) {
                let depth = DEPTH.min(columns - from);
                for eight in (0..rows).step_by(8) {
                    for r in 0..8 {
                        // Missing rows repeat the last: their results are not stored.
                        let row = (start + eight + r).min(weights.end - 1);
                        let piece = part.piece(block, row, from, from + depth);
                        // The same piece of the next panel.
                        for line in (0..piece.len()).step_by(64) {
                            s.prefetch(piece.as_ptr().wrapping_add(rows * part.row_bytes + line));
                        }
                        decode(s, part.dtype, piece, &mut decoded[r * DEPTH..][..depth]);
                    }
                    for k in (0..depth).step_by(8) {
                        let mut eight_rows = [s.splat_b(0); 8];
                        // SAFETY: within `decoded` (DEPTH divides by eight), and the panel has room for all rows.
                        unsafe {
                            for (r, row) in eight_rows.iter_mut().enumerate() {
                                *row = s.load_b(decoded.as_ptr().add(r * DEPTH + k).cast());
                            }
                            s.interleave(eight_rows, panel.as_mut_ptr().add(k * rows + eight).cast(), 4 * rows);
                        }
                    }
                }
                let sink = if from == 0 { sink } else { sink.further() };
                let column = column + start - weights.start;
                let tokens = x.len() / columns;
                let mut values = Tile::new();
                for token in (0..tokens).step_by(S::FLOAT_TILE) {
                    let many = S::FLOAT_TILE.min(tokens - token);
                    // SAFETY: the rows are the activations', and the sink has these columns.
                    unsafe {
                        let x = x.as_ptr().add(token * columns + from);
                        tile(s, many, depth, x, columns, panel.as_ptr(), rows, &mut values);
                        for t in 0..many {
                            sink.put(token + t, column, &values.0[t][..valid]);
                        }
                    }
                }
            }
        }
    }
}

/// Results of a tile: up to eight rows, of two vectors.
pub(super) struct Tile(pub(super) [[f32; MOST_ROWS]; 8]);

impl Tile {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self([[0.0; MOST_ROWS]; 8])
    }
}

/// `many` rows of `x`, `[many, depth]`, times a panel `[depth, two vectors]`. At most `FLOAT_TILE` rows.
///
/// # Safety
/// `x` and `panel` are valid for these rows, `x_stride` and `panel_stride` values apart.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one shape, many sizes")]
pub(super) unsafe fn tile<S: Simd>(
    s: S,
    many: usize,
    depth: usize,
    x: *const f32,
    x_stride: usize,
    panel: *const f32,
    panel_stride: usize,
    out: &mut Tile,
) {
    // SAFETY: the caller's.
    unsafe {
        match many {
            1 => tile_of::<S, 1>(s, depth, x, x_stride, panel, panel_stride, out),
            2 => tile_of::<S, 2>(s, depth, x, x_stride, panel, panel_stride, out),
            3 => tile_of::<S, 3>(s, depth, x, x_stride, panel, panel_stride, out),
            4 => tile_of::<S, 4>(s, depth, x, x_stride, panel, panel_stride, out),
            5 => tile_of::<S, 5>(s, depth, x, x_stride, panel, panel_stride, out),
            6 => tile_of::<S, 6>(s, depth, x, x_stride, panel, panel_stride, out),
            7 if S::FLOAT_TILE > 6 => tile_of::<S, 7>(s, depth, x, x_stride, panel, panel_stride, out),
            8 if S::FLOAT_TILE > 6 => tile_of::<S, 8>(s, depth, x, x_stride, panel, panel_stride, out),
            _ => unreachable!("at most FLOAT_TILE rows"),
        }
    }
}

#[inline(always)]
unsafe fn tile_of<S: Simd, const T: usize>(
    s: S,
    depth: usize,
    x: *const f32,
    x_stride: usize,
    panel: *const f32,
    panel_stride: usize,
    out: &mut Tile,
) {
    let mut acc = [[s.splat(0.0); 2]; T];
    // SAFETY: the caller's.
    unsafe {
        for k in 0..depth {
            let w = panel.add(k * panel_stride);
            let w = [s.load(w), s.load(w.add(S::LANES))];
            for t in 0..T {
                let x = s.splat(*x.add(t * x_stride + k));
                acc[t] = [s.fma(w[0], x, acc[t][0]), s.fma(w[1], x, acc[t][1])];
            }
        }
        for t in 0..T {
            s.store(out.0[t].as_mut_ptr(), acc[t][0]);
            s.store(out.0[t].as_mut_ptr().add(S::LANES), acc[t][1]);
        }
    }
}
