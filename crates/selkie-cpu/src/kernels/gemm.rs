//! Integer products with many rows of activations. A panel of weights is unpacked once, into rows interleaved by four
//! bytes (four columns, or two where the set multiplies words) that stay in the first-level cache, and multiplied with
//! all rows of activations.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::{marker::PhantomData, ops::Range};

use super::{
    Sink,
    formats::{Format, GROUP, Scales, with_format},
    q8::Q8,
    scratch::with_scratch,
};
use crate::{
    Isa,
    matrix::Part,
    simd::{Kernel, Simd, Wide},
};

/// Values of a row which a panel holds at once; whole super-blocks.
const DEPTH: usize = 1024;

/// Most rows of a panel, over all instruction sets.
const MOST_ROWS: usize = 32;

/// Rows of a panel with weights of `bits` bits: two vectors, or one where each weight takes two bytes.
#[inline(always)]
fn panel_rows<S: Simd>(bits: u32) -> usize {
    if splits::<S>(bits) { S::LANES } else { 2 * S::LANES }
}

#[inline(always)]
fn splits<S: Simd>(bits: u32) -> bool {
    bits == 8 && S::WIDE == Wide::Split
}

/// Whether the set wants activations as words too.
pub(crate) fn wants_words(isa: Isa) -> bool {
    struct Words;
    impl Kernel for Words {
        type Output = bool;
        #[inline(always)]
        fn run<S: Simd>(self, _s: S) -> bool {
            S::words(8)
        }
    }
    isa.run(Words)
}

/// The unpacked weights: `q` is `[columns / 4, two vectors]` (`columns / 2` for words), `scales` is `[steps, (scale, offset), rows]` with a step for
/// every 32 columns, or sixteen.
#[derive(Clone, Copy)]
struct Panel {
    q: *mut u8,
    scales: *mut f32,
}

/// Multiplies rows `weights` of `part` with all rows of `activations`, into columns from `column` on. The type of the part
/// has an integer path.
pub(crate) fn gemm(isa: Isa, part: &Part, weights: Range<usize>, activations: &Q8, sink: Sink, column: usize) {
    // Per column of a panel row: a byte or two, and two f32 per sixteen.
    with_scratch(MOST_ROWS * DEPTH * 2 / 4 + 2 * MOST_ROWS * DEPTH / 16, |scratch| {
        let (q, scales) = scratch.split_at_mut(MOST_ROWS * DEPTH * 2 / 4);
        let panel = Panel { q: q.as_mut_ptr().cast(), scales: scales.as_mut_ptr() };
        let (bits, halves, rows) = with_format!(
            part.dtype,
            F => (F::BITS, F::HALVES, isa.run(PanelRows(F::BITS))),
            else unreachable!("the driver asked has_integer_path")
        );
        for start in weights.clone().step_by(rows) {
            let valid = rows.min(weights.end - start);
            for from in (0..activations.columns()).step_by(DEPTH) {
                let columns = from..(from + DEPTH).min(activations.columns());
                let pack = (part, start..start + valid, columns.clone(), panel);
                with_format!(part.dtype, F => isa.run(Pack::<F>(pack, PhantomData)), else ());
                let sink = if from == 0 { sink } else { sink.further() };
                let column = column + start - weights.start;
                let tiles = Tiles { panel, columns, activations, sink, column, valid };
                match (bits, halves) {
                    (..=4, false) => isa.run(Class::<4, false>(tiles)),
                    (5, false) => isa.run(Class::<5, false>(tiles)),
                    (_, false) => isa.run(Class::<8, false>(tiles)),
                    (..=4, true) => isa.run(Class::<4, true>(tiles)),
                    (_, true) => isa.run(Class::<6, true>(tiles)),
                }
            }
        }
    });
}

/// How many rows of weights a task should at least take, and a multiple of what.
pub(crate) fn grain(isa: Isa) -> usize {
    isa.run(PanelRows(4))
}

struct PanelRows(u32);
impl Kernel for PanelRows {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _s: S) -> usize {
        panel_rows::<S>(self.0)
    }
}

/// Unpacks rows and columns of a part into a panel; missing rows repeat the last.
struct Pack<'a, F>((&'a Part, Range<usize>, Range<usize>, Panel), PhantomData<F>);

impl<F: Format> Kernel for Pack<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (part, rows, columns, panel) = self.0;
        let panel_rows = panel_rows::<S>(F::BITS);
        // Bytes of four columns (two of words) of the panel: always two vectors.
        let stride = 2 * 4 * S::LANES;
        let columns_at_once = if S::words(F::BITS) { 2 } else { 4 };
        let steps = if F::HALVES { 2 * F::GROUPS } else { F::GROUPS };
        let bytes = F::BYTES;
        let first = columns.start / (GROUP * F::GROUPS);
        // SAFETY: the rows are the part's and the columns within them; the panel has room for MOST_ROWS rows of DEPTH.
        unsafe {
            let base = part.bytes.as_ptr().add(first * bytes);
            let row: [*const u8; MOST_ROWS] =
                std::array::from_fn(|r| base.add((rows.start + r).min(rows.end - 1) * part.row_bytes));
            for b in 0..columns.len() / (GROUP * F::GROUPS) {
                for r in 0..panel_rows {
                    // The same block of the next panel.
                    for line in (0..F::BYTES).step_by(64) {
                        s.prefetch(row[r].wrapping_add(panel_rows * part.row_bytes + b * F::BYTES + line));
                    }
                    let mut w = Scales::new();
                    F::scales(s, row[r].add(b * bytes), &mut w);
                    for step in 0..steps {
                        let zero = if F::BITS == 8 && S::WIDE == Wide::Signed { 0.0 } else { F::ZERO as f32 };
                        let m = if F::OFFSETS { w.m[step] } else { -zero * w.d[step] };
                        let at = panel.scales.add((b * steps + step) * 2 * panel_rows + r);
                        *at = w.d[step];
                        *at.add(panel_rows) = m;
                    }
                }
                for g in 0..F::GROUPS {
                    let dst = panel.q.add((b * F::GROUPS + g) * (GROUP / columns_at_once) * stride);
                    for eight in (0..panel_rows).step_by(8) {
                        let mut q = [s.splat_b(0); 8];
                        for (r, q) in q.iter_mut().enumerate() {
                            *q = F::quants(s, row[eight + r].add(b * bytes), g);
                        }
                        let dst = dst.add(4 * eight);
                        // Loops rather than `map`: a closure may be left out of line, without the target features.
                        if splits::<S>(F::BITS) {
                            let mut low = q;
                            for r in 0..8 {
                                q[r] = s.shr(q[r], 4);
                                low[r] = s.and(low[r], s.splat_b(15));
                            }
                            s.interleave(low, dst.add(4 * S::LANES), stride);
                        } else if F::BITS == 8 && S::WIDE == Wide::Signed {
                            for q in &mut q {
                                *q = s.xor(*q, s.splat_b(0x80));
                            }
                        }
                        if S::words(F::BITS) {
                            let mut second = q;
                            for r in 0..8 {
                                [q[r], second[r]] = s.to_words(q[r]);
                            }
                            s.interleave(second, dst.add(GROUP / 4 * stride), stride);
                        }
                        s.interleave(q, dst, stride);
                    }
                }
            }
        }
    }
}

/// A panel times all rows of activations.
struct Tiles<'a> {
    panel: Panel,
    columns: Range<usize>,
    activations: &'a Q8,
    sink: Sink,
    column: usize,
    /// Rows of the panel that are there.
    valid: usize,
}

/// Tiles of weights of at most `BITS` bits, with a scale per 32 or (`HALVES`) per sixteen.
struct Class<'a, const BITS: u32, const HALVES: bool>(Tiles<'a>);

impl<const BITS: u32, const HALVES: bool> Kernel for Class<'_, BITS, HALVES> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.0.activations.rows();
        let mut token = 0;
        while S::TILE >= 6 && token + 6 <= rows {
            self.tile::<S, 6>(s, token);
            token += 6;
        }
        while token + 4 <= rows {
            self.tile::<S, 4>(s, token);
            token += 4;
        }
        match rows - token {
            3 => self.tile::<S, 3>(s, token),
            2 => self.tile::<S, 2>(s, token),
            1 => self.tile::<S, 1>(s, token),
            _ => (),
        }
    }
}

impl<const BITS: u32, const HALVES: bool> Class<'_, BITS, HALVES> {
    /// The panel times `T` rows of activations from `token` on.
    #[inline(always)]
    fn tile<S: Simd, const T: usize>(&self, s: S, token: usize) {
        let Tiles { panel, ref columns, activations, sink, column, valid } = self.0;
        let split = splits::<S>(BITS);
        let vectors = if split { 1 } else { 2 };
        let stride = 2 * 4 * S::LANES;
        // Groups of four columns in a step, and how many of them a narrow sum takes.
        let fours = if HALVES { GROUP / 8 } else { GROUP / 4 };
        let macs = S::macs(if split { 4 } else { BITS }).min(fours);
        let words = S::words(BITS);
        // Hidden from the compiler, which would unroll the loop over them, order it by rows of activations, and spill
        // the weights that all rows share.
        let hidden = std::hint::black_box(if words { 2 * fours } else { macs });
        let scales_a_row = activations.columns() / GROUP;
        let mut acc = [[s.splat(0.0); 2]; T];
        // SAFETY: the rows and columns are the activations' (the driver checked), and the panel holds these columns.
        unsafe {
            let q: [*const i8; T] = std::array::from_fn(|t| {
                activations.q.as_ptr().add((token + t) * activations.columns() + columns.start)
            });
            let a_words: [*const i16; T] = std::array::from_fn(|t| {
                activations.words.as_ptr().wrapping_add((token + t) * activations.columns() + columns.start)
            });
            let a_scales: [*const f32; T] = std::array::from_fn(|t| {
                activations.scales.as_ptr().add((token + t) * scales_a_row + columns.start / GROUP)
            });
            let a_sums: [*const f32; T] = std::array::from_fn(|t| {
                let (sums, per_row) =
                    if HALVES { (&activations.half_sums, 2 * scales_a_row) } else { (&activations.sums, scales_a_row) };
                sums.as_ptr().add((token + t) * per_row + columns.start / (4 * fours))
            });
            for step in 0..columns.len() / (4 * fours) {
                let mut sums = [[s.i_zero(); 2]; T];
                if words {
                    for i in 0..hidden {
                        let two = step * 2 * fours + i;
                        let w = panel.q.add(two * stride);
                        let w = [s.load_p(w), s.load_p(w.add(4 * S::LANES))];
                        for t in 0..T {
                            let a = s.broadcast_p(a_words[t].add(2 * two).cast());
                            sums[t][0] = s.mac_words(sums[t][0], w[0], a);
                            sums[t][1] = s.mac_words(sums[t][1], w[1], a);
                        }
                    }
                }
                for part in 0..if words { 0 } else { fours / macs } {
                    let mut narrow = [[s.n_zero(); 2]; T];
                    for i in 0..hidden {
                        let four = step * fours + part * macs + i;
                        let w = panel.q.add(four * stride);
                        let w = [s.load_p(w), s.load_p(w.add(4 * S::LANES))];
                        for t in 0..T {
                            let a = s.broadcast_p(q[t].add(4 * four));
                            narrow[t][0] = s.mac(narrow[t][0], w[0], a);
                            narrow[t][1] = s.mac(narrow[t][1], w[1], a);
                        }
                    }
                    for t in 0..T {
                        if split {
                            let both = s.i_add(s.widen16(narrow[t][0]), s.widen(narrow[t][1]));
                            sums[t][0] = s.i_add(sums[t][0], both);
                        } else {
                            sums[t][0] = s.i_add(sums[t][0], s.widen(narrow[t][0]));
                            sums[t][1] = s.i_add(sums[t][1], s.widen(narrow[t][1]));
                        }
                    }
                }
                let scales = panel.scales.add(step * 2 * vectors * S::LANES);
                for v in 0..vectors {
                    let d = s.load(scales.add(v * S::LANES));
                    let m = s.load(scales.add((vectors + v) * S::LANES));
                    for t in 0..T {
                        let a_scale = s.splat(*a_scales[t].add(if HALVES { step / 2 } else { step }));
                        let a_sum = s.splat(*a_sums[t].add(step));
                        let product = s.mul(s.to_f32(sums[t][v]), d);
                        acc[t][v] = s.fma(m, a_sum, s.fma(product, a_scale, acc[t][v]));
                    }
                }
            }
            let mut values = [0f32; MOST_ROWS];
            for t in 0..T {
                for v in 0..vectors {
                    s.store(values.as_mut_ptr().add(v * S::LANES), acc[t][v]);
                }
                sink.put(token + t, column, &values[..valid]);
            }
        }
    }
}
