//! The recurrence of Mamba-3: that of Mamba-2 with decays and rotations that depend on the input, an input which counts
//! half now and half with the next token, and maybe several keys and queries a token.
//!
//! What a token leaves for the next one is added together with its own part, which makes it the recurrence of
//! [`chunk`](super::chunk). Only the token before a piece has yet to give the rest of its part: it goes in front.
#![allow(unsafe_code)]

use selkie_model::{
    reference::ops::{DecayActivation, Mamba3Shape},
    rope::Pairing,
};

use super::{
    chunk::{CHUNK, COLUMNS, Chunk, Gram, Matrix, MatrixMut, Step, from_blocks, state_len, to_blocks},
    state::{Recurrence, RecurrentState},
};
use crate::{
    Isa, Pool,
    error::{Error, Result, expect},
    kernels::{
        Shared, math,
        scratch::with_scratch,
        vector::{load_some, store_some},
    },
    simd::{Kernel, Simd},
};

/// From this many rows on they are computed as chunks, where a token has one key.
const CHUNKED: usize = 8;

/// Rows that are prepared for all heads at a time.
const SEGMENT: usize = 256;

/// What a [`Mamba3`] has learnt.
#[derive(Clone, Copy, Debug)]
pub struct Mamba3Parameters<'a> {
    /// `[n_heads]`
    pub dt_bias: &'a [f32],
    /// `[n_heads, rank, d_state]`
    pub b_bias: &'a [f32],
    /// `[n_heads, rank, d_state]`
    pub c_bias: &'a [f32],
    /// `[n_heads]`
    pub d: &'a [f32],
    /// `[n_heads, rank, head_dim]`: an input for each rank; without it the rank is 1.
    pub mimo_x: Option<&'a [f32]>,
}

/// `S = alpha S + beta x' k'^T + gamma x k^T; y = S q + d x`, with x' and k' of the token before.
#[derive(Clone, Debug)]
pub struct Mamba3 {
    shape: Mamba3Shape,
    dt_bias: Vec<f32>,
    /// `[n_heads, rank, d_state]`, states in the order of `order`, as everywhere inside.
    b_bias: Vec<f32>,
    c_bias: Vec<f32>,
    d: Vec<f32>,
    mimo_x: Option<Vec<f32>>,
    /// Where each state is outside: the first ones of all pairs that turn, their second ones, the rest.
    order: Vec<usize>,
    /// `head_dim`, rounded up.
    width: usize,
    widths: [usize; 7],
}

impl Mamba3 {
    /// # Errors
    /// Where the sizes do not fit, or are zero.
    pub fn new(shape: Mamba3Shape, parameters: &Mamba3Parameters<'_>) -> Result<Self> {
        let Mamba3Shape { n_heads, head_dim, n_groups, d_state, rank, n_angles, pairing, .. } = shape;
        let Mamba3Parameters { dt_bias, b_bias, c_bias, d, mimo_x } = *parameters;
        if [n_heads, head_dim, n_groups, d_state, rank].contains(&0) || rank > CHUNK / 2 {
            return Err(Error::Parameter("a Mamba-3 layer has heads, channels, groups, a state, and 1 to 16 ranks"));
        }
        if 2 * n_angles > d_state {
            return Err(Error::Parameter("more pairs turn than a state of Mamba-3 has"));
        }
        if mimo_x.is_none() && rank != 1 {
            return Err(Error::Parameter("several ranks of Mamba-3 want an input for each"));
        }
        expect("dt bias of a Mamba-3 layer", "values", n_heads, dt_bias.len())?;
        expect("B bias of a Mamba-3 layer", "values", n_heads * rank * d_state, b_bias.len())?;
        expect("C bias of a Mamba-3 layer", "values", n_heads * rank * d_state, c_bias.len())?;
        expect("D of a Mamba-3 layer", "values", n_heads, d.len())?;
        let inputs = n_heads * rank * head_dim;
        expect("ranks' inputs of a Mamba-3 layer", "values", inputs, mimo_x.map_or(inputs, <[f32]>::len))?;
        let pair = |i: usize| match pairing {
            Pairing::Interleaved => [2 * i, 2 * i + 1],
            Pairing::Halves => [i, i + d_state / 2],
        };
        let mut order: Vec<usize> = (0..2).flat_map(|k| (0..n_angles).map(move |i| pair(i)[k])).collect();
        order.extend((0..d_state).filter(|n| !(0..n_angles).any(|i| pair(i).contains(n))));
        let bc = rank * n_groups * d_state;
        let mut layer = Self {
            dt_bias: dt_bias.to_vec(),
            b_bias: Vec::new(),
            c_bias: Vec::new(),
            d: d.to_vec(),
            mimo_x: mimo_x.map(<[f32]>::to_vec),
            width: head_dim.next_multiple_of(COLUMNS),
            widths: [n_heads * head_dim, bc, bc, n_heads, n_heads, n_heads, n_angles],
            shape,
            order,
        };
        (layer.b_bias, layer.c_bias) = (layer.ordered(b_bias), layer.ordered(c_bias));
        Ok(layer)
    }

    /// Rows of `d_state` from the order outside into that inside.
    fn ordered(&self, x: &[f32]) -> Vec<f32> {
        x.chunks_exact(self.order.len()).flat_map(|x| self.order.iter().map(|&n| x[n])).collect()
    }

    /// The reverse.
    fn as_outside(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        let rows = x.chunks_exact(self.order.len()).zip(out.chunks_exact_mut(self.order.len()));
        rows.for_each(|(x, out)| self.order.iter().zip(x).for_each(|(&n, &x)| out[n] = x));
        out
    }

    /// Values of a head's state.
    fn len(&self) -> usize {
        state_len(self.shape.head_dim, self.shape.d_state)
    }

    /// All heads of a segment that is prepared.
    fn heads(&self, pool: &Pool, planes: &[Shared<f32>; 4], x: &[f32], ready: &Prepared<'_>, out: Shared<f32>) {
        let Mamba3Shape { n_heads, head_dim, d_state, rank, n_angles, .. } = self.shape;
        // The token before goes in front of the first chunk.
        let tokens = (CHUNK / rank).min(ready.rows + 1);
        let parts = [
            tokens * rank * d_state,
            tokens * rank * d_state,
            tokens * rank * self.width,
            tokens * rank * self.width,
            CHUNK * CHUNK,
            (d_state * CHUNK).max(2 * CHUNK * CHUNK),
        ];
        let isa = pool.isa();
        pool.split(n_heads, 1, |heads| {
            let out = &out;
            for head in heads {
                let part = |plane: usize, len: usize| {
                    // SAFETY: the planes have a part of this length for each head, and no other task touches it.
                    unsafe { std::slice::from_raw_parts_mut(planes[plane].0.add(head * len), len) }
                };
                let state = HeadState {
                    angle: part(0, n_angles),
                    s: part(1, self.len()),
                    k: part(2, rank * d_state),
                    x: part(3, head_dim),
                };
                with_scratch(parts.iter().sum(), |scratch| {
                    let (k, rest) = scratch.split_at_mut(parts[0]);
                    let (q, rest) = rest.split_at_mut(parts[1]);
                    let (v, rest) = rest.split_at_mut(parts[2]);
                    let (y, rest) = rest.split_at_mut(parts[3]);
                    let (gram, scratch) = rest.split_at_mut(parts[4]);
                    v.fill(0.0);
                    let room = Room { k, q, v, y, gram, scratch };
                    let put = |row: usize, y: &[f32]| {
                        for (r, y) in y.chunks_exact(self.width).enumerate() {
                            let at = ((row * n_heads + head) * rank + r) * head_dim;
                            // SAFETY: the result has this row, and no other task writes this head's part.
                            let out = unsafe { std::slice::from_raw_parts_mut(out.0.add(at), head_dim) };
                            out.copy_from_slice(&y[..head_dim]);
                        }
                    };
                    if rank == 1 && ready.rows < CHUNKED {
                        self.steps(isa, head, x, ready, state, room, put);
                    } else {
                        self.chunks(isa, head, x, ready, state, room, put);
                    }
                });
            }
        });
    }

    /// A head's input of a row, for each rank.
    fn inputs(&self, head: usize, x: &[f32], out: &mut [f32]) {
        let len = self.shape.rank * self.shape.head_dim;
        for (r, out) in out.chunks_exact_mut(self.width).enumerate() {
            match &self.mimo_x {
                Some(by) => {
                    let by = &by[head * len + r * x.len()..][..x.len()];
                    out.iter_mut().zip(x.iter().zip(by)).for_each(|(out, (x, by))| *out = x * by);
                }
                None => out[..x.len()].copy_from_slice(x),
            }
        }
    }

    fn input_of<'a>(&self, x: &'a [f32], head: usize, row: usize) -> &'a [f32] {
        let Mamba3Shape { n_heads, head_dim, .. } = self.shape;
        &x[(row * n_heads + head) * head_dim..][..head_dim]
    }

    /// Token by token, with one key each.
    #[allow(clippy::too_many_arguments, reason = "one shape, many operands")]
    fn steps(
        &self,
        isa: Isa,
        head: usize,
        x: &[f32],
        ready: &Prepared<'_>,
        state: HeadState<'_>,
        room: Room<'_>,
        put: impl Fn(usize, &[f32]),
    ) {
        let Room { k, q, v, y, .. } = room;
        let d_state = self.shape.d_state;
        let (now_input, last_input) = v[..2 * self.width].split_at_mut(self.width);
        for row in 0..ready.rows {
            let [log_decay, now, before] = ready.factors(row, head);
            let decay = log_decay.exp();
            isa.run(Turn {
                layer: self,
                ready,
                head,
                rows: row..row + 1,
                angle: state.angle,
                k: &mut k[..d_state],
                q: &mut q[..d_state],
            });
            let input = self.input_of(x, head, row);
            self.inputs(head, input, now_input);
            self.inputs(head, state.x, last_input);
            now_input.iter_mut().for_each(|x| *x *= now);
            last_input.iter_mut().for_each(|x| *x *= decay * before);
            isa.run(Step {
                decay,
                inputs: &[(now_input, &k[..d_state]), (last_input, state.k)],
                q: &q[..d_state],
                state: state.s,
                y: &mut y[..self.width],
            });
            // The input once more, without its factor.
            self.inputs(head, input, now_input);
            let d = self.d[head];
            y[..self.width].iter_mut().zip(&*now_input).for_each(|(y, x)| *y += d * x);
            put(row, &y[..self.width]);
            state.k.copy_from_slice(&k[..d_state]);
            state.x.copy_from_slice(input);
        }
    }

    /// Chunk by chunk.
    #[allow(clippy::too_many_arguments, reason = "one shape, many operands")]
    fn chunks(
        &self,
        isa: Isa,
        head: usize,
        x: &[f32],
        ready: &Prepared<'_>,
        state: HeadState<'_>,
        room: Room<'_>,
        put: impl Fn(usize, &[f32]),
    ) {
        let Mamba3Shape { d_state, rank, .. } = self.shape;
        let Room { k, q, v, y, gram, scratch } = room;
        let (keys, values) = (rank * d_state, rank * self.width);
        let mut row = 0;
        while row < ready.rows {
            // Tokens in front that were there before.
            let old = usize::from(row == 0);
            let tokens = (CHUNK / rank).min(ready.rows - row + old);
            let rows = row..row + tokens - old;
            let (mut decays, mut gains, mut own) = ([0f32; CHUNK], [0f32; CHUNK], [0f32; CHUNK]);
            if old == 1 {
                k[..keys].copy_from_slice(state.k);
                q[..keys].fill(0.0);
                self.inputs(head, state.x, &mut v[..values]);
                let [_, _, before] = ready.factors(0, head);
                gains[..rank].fill(before);
            }
            for (i, row) in rows.clone().enumerate() {
                let at = (old + i) * rank;
                let [log_decay, now, _] = ready.factors(row, head);
                let left = if row + 1 < ready.rows { ready.factors(row + 1, head)[2] } else { 0.0 };
                decays[at] = log_decay;
                gains[at..at + rank].fill(now + left);
                own[at..at + rank].fill(now);
                self.inputs(head, self.input_of(x, head, row), &mut v[(old + i) * values..][..values]);
            }
            let turned = old * keys..tokens * keys;
            isa.run(Turn {
                layer: self,
                ready,
                head,
                rows: rows.clone(),
                angle: state.angle,
                k: &mut k[turned.clone()],
                q: &mut q[turned],
            });
            let matrix = |x: &[f32], stride: usize| Matrix { at: x.as_ptr(), stride };
            let (q, k_matrix) = (matrix(q, d_state), matrix(k, d_state));
            let many = tokens * rank;
            isa.run(Gram { rows: many, rank, d_state, q, k: k_matrix, out: &mut *gram, scratch: &mut *scratch });
            isa.run(Chunk {
                rows: many,
                rank,
                d_state,
                q,
                k: k_matrix,
                gram,
                x: matrix(v, self.width),
                decays: &decays,
                gains: &gains,
                own: &own,
                d: self.d[head],
                state: &mut *state.s,
                y: MatrixMut { at: y.as_mut_ptr(), stride: self.width },
                scratch: &mut *scratch,
            });
            rows.clone().for_each(|row| put(row, &y[(old + row - rows.start) * values..][..values]));
            row = rows.end;
            if row == ready.rows {
                state.k.copy_from_slice(&k[(tokens - 1) * keys..][..keys]);
                state.x.copy_from_slice(self.input_of(x, head, row - 1));
            }
        }
    }
}

/// One head's part of the state.
struct HeadState<'a> {
    angle: &'a mut [f32],
    s: &'a mut [f32],
    k: &'a mut [f32],
    x: &'a mut [f32],
}

/// The memory that a head works in.
struct Room<'a> {
    k: &'a mut [f32],
    q: &'a mut [f32],
    v: &'a mut [f32],
    y: &'a mut [f32],
    gram: &'a mut [f32],
    scratch: &'a mut [f32],
}

/// What all heads have in common, or is computed faster for all of them.
struct Prepared<'a> {
    n_heads: usize,
    rows: usize,
    /// `[rows, n_heads]` each.
    deltas: &'a [f32],
    log_decays: &'a [f32],
    /// The factor of a row's own input.
    now: &'a [f32],
    /// The factor of the input of the row before.
    before: &'a [f32],
    /// `pi tanh(angle)`, `[rows, n_angles]`
    turns: &'a [f32],
    /// `[rows, rank, n_groups, d_state]`
    b: &'a [f32],
    c: &'a [f32],
}

impl Prepared<'_> {
    /// The logarithm of the decay, and the factors of this input and the one before.
    fn factors(&self, row: usize, head: usize) -> [f32; 3] {
        let at = row * self.n_heads + head;
        [self.log_decays[at], self.now[at], self.before[at]]
    }
}

/// The factors of all heads and rows, from their raw values: deltas, log decays, now, before.
struct Factors<'a> {
    layer: &'a Mamba3,
    raw: [&'a [f32]; 3],
    out: [&'a mut [f32]; 4],
    angles: &'a [f32],
    turns: &'a mut [f32],
}

impl Kernel for Factors<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Factors { layer, raw: [dt, a, trap], out: [deltas, log_decays, now, before], angles, turns } = self;
        let Mamba3Shape { n_heads, a_activation, a_floor, .. } = layer.shape;
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        for first in (0..dt.len()).step_by(n_heads) {
            for head in (0..n_heads).step_by(S::LANES) {
                let at = first + head..first + (head + S::LANES).min(n_heads);
                let bias = load_some(s, &layer.dt_bias[head..]);
                let delta = math::softplus(s, s.add(load_some(s, &dt[at.clone()]), bias));
                let a = load_some(s, &a[at.clone()]);
                let rate = match a_activation {
                    DecayActivation::Softplus => math::softplus(s, a),
                    // 1 + a from 0 on, 1 / (1 - a) below.
                    DecayActivation::HeavyTail => {
                        s.div(s.add(one, s.max(zero, a)), s.add(one, s.max(zero, s.sub(zero, a))))
                    }
                };
                let rate = s.max(s.splat(a_floor), rate);
                let trap = math::sigmoid(s, load_some(s, &trap[at.clone()]));
                store_some(s, &mut deltas[at.clone()], delta);
                store_some(s, &mut log_decays[at.clone()], s.mul(s.sub(zero, rate), delta));
                store_some(s, &mut now[at.clone()], s.mul(trap, delta));
                store_some(s, &mut before[at], s.mul(s.sub(one, trap), delta));
            }
        }
        for i in (0..angles.len()).step_by(S::LANES) {
            let rate = math::tanh(s, load_some(s, &angles[i..]));
            store_some(s, &mut turns[i..], s.mul(s.splat(std::f32::consts::PI), rate));
        }
    }
}

/// Keys and queries of a head, biased and turned: `[rows, rank, d_state]` each.
struct Turn<'a> {
    layer: &'a Mamba3,
    ready: &'a Prepared<'a>,
    head: usize,
    rows: std::ops::Range<usize>,
    angle: &'a mut [f32],
    k: &'a mut [f32],
    q: &'a mut [f32],
}

impl Kernel for Turn<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Turn { layer, ready, head, rows, angle, k, q } = self;
        let Mamba3Shape { n_heads, n_groups, d_state, rank, n_angles, .. } = layer.shape;
        let group = head * n_groups / n_heads;
        for (i, row) in rows.enumerate() {
            let delta = s.splat(ready.deltas[row * n_heads + head]);
            let turns = &ready.turns[row * n_angles..][..n_angles];
            let keys = i * rank * d_state..(i + 1) * rank * d_state;
            let (k, q) = (&mut k[keys.clone()], &mut q[keys]);
            for r in 0..rank {
                let from = ((row * rank + r) * n_groups + group) * d_state;
                let bias = (head * rank + r) * d_state;
                for n in (0..d_state).step_by(S::LANES) {
                    let end = (n + S::LANES).min(d_state);
                    let b = s.add(
                        load_some(s, &ready.b[from + n..from + end]),
                        load_some(s, &layer.b_bias[bias + n..bias + end]),
                    );
                    let c = s.add(
                        load_some(s, &ready.c[from + n..from + end]),
                        load_some(s, &layer.c_bias[bias + n..bias + end]),
                    );
                    store_some(s, &mut k[r * d_state + n..r * d_state + end], b);
                    store_some(s, &mut q[r * d_state + n..r * d_state + end], c);
                }
            }
            for n in (0..n_angles).step_by(S::LANES) {
                let end = (n + S::LANES).min(n_angles);
                // Less whole turns: 2 pi in two parts, as in `cos_sin`.
                let next = s.fma(load_some(s, &turns[n..end]), delta, load_some(s, &angle[n..end]));
                let whole = s.round(s.fma(next, s.splat(std::f32::consts::FRAC_1_PI / 2.0), s.splat(-0.5)));
                let next = s.fma(whole, s.splat(-6.281_25), next);
                let next = s.fma(whole, s.splat(-1.935_307_2e-3), next);
                store_some(s, &mut angle[n..end], next);
                let (cos, sin) = math::cos_sin(s, next);
                let minus = s.sub(s.splat(0.0), sin);
                for r in 0..rank {
                    let (first, second) = (r * d_state + n, r * d_state + n_angles + n);
                    for x in [&mut *k, &mut *q] {
                        let a = load_some(s, &x[first..first + end - n]);
                        let b = load_some(s, &x[second..second + end - n]);
                        store_some(s, &mut x[first..first + end - n], s.fma(b, minus, s.mul(a, cos)));
                        store_some(s, &mut x[second..second + end - n], s.fma(a, sin, s.mul(b, cos)));
                    }
                }
            }
        }
    }
}

impl Recurrence for Mamba3 {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.shape.n_heads * self.shape.rank * self.shape.head_dim
    }

    fn planes(&self) -> Vec<usize> {
        let Mamba3Shape { n_heads, head_dim, d_state, rank, n_angles, .. } = self.shape;
        [n_angles, head_dim * d_state, rank * d_state, head_dim].map(|len| n_heads * len).to_vec()
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        let Mamba3Shape { n_heads, head_dim, d_state, rank, n_angles, .. } = self.shape;
        [n_angles, self.len(), rank * d_state, head_dim].map(|len| vec![0.0; n_heads * len]).to_vec()
    }

    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]) {
        let [angle, s, k, last] = planes else { unreachable!("as many as planes") };
        let planes = [angle, s, k, last].map(|plane| Shared(plane.as_mut_ptr()));
        let (n_heads, n_angles, outputs) = (self.shape.n_heads, self.shape.n_angles, self.outputs());
        for first in (0..rows).step_by(SEGMENT) {
            let rows = SEGMENT.min(rows - first);
            let mut parts = [&[][..]; 7];
            for ((part, input), width) in parts.iter_mut().zip(inputs).zip(self.widths) {
                *part = &input[first * width..(first + rows) * width];
            }
            let [x, b, c, dt, a, trap, angles] = parts;
            with_scratch(4 * rows * n_heads + rows * n_angles + b.len() + c.len(), |scratch| {
                let (deltas, rest) = scratch.split_at_mut(rows * n_heads);
                let (log_decays, rest) = rest.split_at_mut(rows * n_heads);
                let (now, rest) = rest.split_at_mut(rows * n_heads);
                let (before, rest) = rest.split_at_mut(rows * n_heads);
                let (turns, rest) = rest.split_at_mut(rows * n_angles);
                let (ordered_b, ordered_c) = rest.split_at_mut(b.len());
                let out_of = [&mut *deltas, &mut *log_decays, &mut *now, &mut *before];
                pool.isa().run(Factors { layer: self, raw: [dt, a, trap], out: out_of, angles, turns });
                for (x, out) in [(b, &mut *ordered_b), (c, &mut *ordered_c)] {
                    let rows = x.chunks_exact(self.order.len()).zip(out.chunks_exact_mut(self.order.len()));
                    rows.for_each(|(x, out)| out.iter_mut().zip(&self.order).for_each(|(out, &n)| *out = x[n]));
                }
                let ready =
                    Prepared { n_heads, rows, deltas, log_decays, now, before, turns, b: ordered_b, c: ordered_c };
                let out = Shared(out[first * outputs..].as_mut_ptr());
                self.heads(pool, &planes, x, &ready, out);
            });
        }
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let s = from_blocks(self.shape.head_dim, self.shape.d_state, &planes[1]);
        vec![planes[0].clone(), self.as_outside(&s), self.as_outside(&planes[2]), planes[3].clone()]
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let s = to_blocks(self.shape.head_dim, self.shape.d_state, &self.ordered(&planes[1]));
        vec![planes[0].clone(), s, self.ordered(&planes[2]), planes[3].clone()]
    }
}

/// The state of one sequence: the angles, `[n_heads, n_angles]`; S, `[n_heads, head_dim, d_state]`; the last token's keys,
/// biased and turned, `[n_heads, rank, d_state]`, and its input, `[n_heads, head_dim]`.
pub type Mamba3State = RecurrentState<Mamba3>;

/// Rows of the inputs of a [`Mamba3State`].
#[derive(Clone, Copy, Debug)]
pub struct Mamba3Inputs<'a> {
    /// `[rows, n_heads * head_dim]`
    pub x: &'a [f32],
    /// After its norm, `[rows, rank * n_groups * d_state]`.
    pub b: &'a [f32],
    /// As `b`.
    pub c: &'a [f32],
    /// Before its bias, `[rows, n_heads]`.
    pub dt: &'a [f32],
    /// Raw, `[rows, n_heads]`.
    pub a: &'a [f32],
    /// Raw, `[rows, n_heads]`.
    pub trap: &'a [f32],
    /// Raw, `[rows, n_angles]`.
    pub angle: &'a [f32],
}

impl Mamba3State {
    /// Takes in rows and writes `y` into `out`, `[rows, n_heads, rank, head_dim]`.
    ///
    /// # Errors
    /// Where the sizes do not fit.
    pub fn forward(&mut self, pool: &Pool, inputs: &Mamba3Inputs<'_>, out: &mut [f32]) -> Result<()> {
        let &Mamba3Inputs { x, b, c, dt, a, trap, angle } = inputs;
        self.advance(pool, &[x, b, c, dt, a, trap, angle], out)
    }
}
