//! Mamba-3: a decay and a rotation that depend on the input, and an input taken by the trapezoidal rule.

use std::{f64::consts::PI, ops::Range};

use super::{
    attention::dot,
    chunk::{Chunk, scan_chunk},
    rope, sigmoid, softplus,
};
use crate::{
    reference::Real,
    rope::Pairing,
    spec::{DecayActivation, Mamba3Shape},
};

impl DecayActivation {
    /// The positive rate.
    pub fn of<T: Real>(self, x: T) -> T {
        let one = T::from_f64(1.0);
        match self {
            DecayActivation::Softplus => softplus(x),
            DecayActivation::HeavyTail if x < T::default() => one / (one - x),
            DecayActivation::HeavyTail => one + x,
        }
    }

    /// The derivative of [`of`](Self::of).
    pub fn derivative<T: Real>(self, x: T) -> T {
        let one = T::from_f64(1.0);
        match self {
            DecayActivation::Softplus => sigmoid(x),
            DecayActivation::HeavyTail if x < T::default() => one / ((one - x) * (one - x)),
            DecayActivation::HeavyTail => one,
        }
    }
}

/// What a [`mamba3`] has learnt.
#[derive(Clone, Copy, Debug)]
pub struct Mamba3Params<'a, T> {
    /// `[n_heads]`.
    pub dt_bias: &'a [T],
    /// `[n_heads, rank, d_state]`.
    pub b_bias: &'a [T],
    /// `[n_heads, rank, d_state]`.
    pub c_bias: &'a [T],
    /// `[n_heads]`.
    pub d: &'a [T],
    /// `[n_heads, rank, head_dim]`: makes a head's input into one for each rank; without it the rank is 1.
    pub mimo_x: Option<&'a [T]>,
}

/// The state of a [`mamba3`], in and out.
#[derive(Debug)]
pub struct Mamba3State<'a, T> {
    /// `[n_heads, n_angles]`, between 0 and 2π.
    pub angle: &'a mut [T],
    /// `[n_heads, head_dim, d_state]`.
    pub s: &'a mut [T],
    /// `[n_heads, rank, d_state]`: the last row's keys, biased and turned.
    pub k: &'a mut [T],
    /// `[n_heads, head_dim]`: the last row's input, before `mimo_x`.
    pub x: &'a mut [T],
}

/// As [`Mamba3State`], as values of its own: a state, or its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba3Values<T> {
    /// `[n_heads, n_angles]`.
    pub angle: Vec<T>,
    /// `[n_heads, head_dim, d_state]`.
    pub s: Vec<T>,
    /// `[n_heads, rank, d_state]`.
    pub k: Vec<T>,
    /// `[n_heads, head_dim]`.
    pub x: Vec<T>,
}

impl<T: Real> Mamba3Values<T> {
    /// The state before a sequence.
    pub fn zeros(shape: &Mamba3Shape) -> Self {
        let zeros = |each: usize| vec![T::default(); shape.n_heads * each];
        Self {
            angle: zeros(shape.n_angles),
            s: zeros(shape.head_dim * shape.d_state),
            k: zeros(shape.rank * shape.d_state),
            x: zeros(shape.head_dim),
        }
    }

    /// For [`mamba3`] to read and write.
    pub fn lend(&mut self) -> Mamba3State<'_, T> {
        Mamba3State { angle: &mut self.angle, s: &mut self.s, k: &mut self.k, x: &mut self.x }
    }
}

/// One head's scalars at one row.
pub(super) struct Step<T> {
    /// Δ.
    pub dt: T,
    /// λ: how much of the input counts now; the rest counts with the next row.
    pub trap: T,
    /// A, negative.
    pub rate: T,
}

impl<T: Real> Step<T> {
    pub fn log_decay(&self) -> T {
        self.dt * self.rate
    }

    /// α.
    pub fn decay(&self) -> T {
        self.log_decay().exp()
    }

    /// γ, the factor of this row's input.
    pub fn now(&self) -> T {
        self.trap * self.dt
    }

    /// `(1 - λ) · Δ`, the factor of the input of the row before; times α, where the states have decayed already, it is β.
    pub fn before(&self) -> T {
        (T::from_f64(1.0) - self.trap) * self.dt
    }
}

impl Mamba3Shape {
    pub(super) fn step<T: Real>(&self, dt: T, dt_bias: T, a: T, trap: T) -> Step<T> {
        let (rate, floor) = (self.a_activation.of(a), T::from_f32(self.a_floor));
        Step { dt: softplus(dt + dt_bias), trap: sigmoid(trap), rate: -if rate < floor { floor } else { rate } }
    }

    /// Turns one head's angles `[n_angles]` on: `φ + π · tanh(angle) · Δ`, less whole turns.
    fn advance<T: Real>(&self, angles: &mut [T], rates: &[T], dt: T) {
        let turn = T::from_f64(2.0 * PI);
        for (angle, &rate) in angles.iter_mut().zip(rates) {
            let next = *angle + T::from_f64(PI) * rate.tanh() * dt;
            *angle = next - (next / turn).floor() * turn;
        }
    }

    /// `[rank, d_state]`: a head's B (or C) of one row, `bc` `[rank, n_groups, d_state]`, biased and turned.
    pub(super) fn turned<T: Real>(&self, bc: &[T], bias: &[T], head: usize, angles: &[T]) -> Vec<T> {
        let n = self.d_state;
        let group = head * self.n_groups / self.n_heads;
        let bias = &bias[self.key(head)];
        let mut out = Vec::with_capacity(self.rank * n);
        for r in 0..self.rank {
            let bc = &bc[(r * self.n_groups + group) * n..][..n];
            out.extend(bc.iter().zip(&bias[r * n..]).map(|(&v, &bias)| v + bias));
            rope(&mut out[r * n..], &self.rotation(angles), self.pairing);
        }
        out
    }

    /// The states of pair `i`.
    pub(super) fn pair(&self, i: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Interleaved => (2 * i, 2 * i + 1),
            Pairing::Halves => (i, i + self.d_state / 2),
        }
    }

    /// `(cos, sin)` of each of the `d_state / 2` pairs; those without an angle stay.
    pub(super) fn rotation<T: Real>(&self, angles: &[T]) -> Vec<(T, T)> {
        let mut pairs: Vec<(T, T)> = angles.iter().map(|angle| (angle.cos(), angle.sin())).collect();
        pairs.resize(self.d_state / 2, (T::from_f64(1.0), T::default()));
        pairs
    }

    /// `[rank, head_dim]`: a head's input `x` `[head_dim]` for each rank.
    pub(super) fn inputs<T: Real>(&self, x: &[T], mimo_x: Option<&[T]>, head: usize) -> Vec<T> {
        let Some(mimo_x) = mimo_x else { return x.to_vec() };
        mimo_x[self.input(head)]
            .chunks_exact(self.head_dim)
            .flat_map(|w| x.iter().zip(w).map(|(&x, &w)| w * x))
            .collect()
    }

    /// Where a head's part of `[n_heads, rank, d_state]` lies.
    pub(super) fn key(&self, head: usize) -> Range<usize> {
        part(head, self.rank * self.d_state)
    }

    /// Where a head's part of `[n_heads, rank, head_dim]` lies.
    pub(super) fn input(&self, head: usize) -> Range<usize> {
        part(head, self.rank * self.head_dim)
    }

    /// Where a head's part of `[n_heads, head_dim, d_state]` lies.
    pub(super) fn states(&self, head: usize) -> Range<usize> {
        part(head, self.head_dim * self.d_state)
    }

    /// Where a row's part of B or C lies.
    pub(super) fn bc(&self, row: usize) -> Range<usize> {
        part(row, self.rank * self.n_groups * self.d_state)
    }
}

/// The `index`th of parts that are `width` wide.
pub(super) fn part(index: usize, width: usize) -> Range<usize> {
    index * width..(index + 1) * width
}

/// For each head and row, with `Δ = softplus(dt + dt_bias)`, `λ = σ(trap)`, `A = -max(activation(a), a_floor)`, `α = e^{ΔA}`,
/// `γ = λΔ`, `β = (1 - λ)Δα` and the angles `φ` turned on by `π · tanh(angle) · Δ`:
///
/// `k_r = Rot_φ(b_r + b_bias)`, `q_r = Rot_φ(c_r + c_bias)`, `x_r = mimo_x · x`,
/// `S = α · S + β · Σ_r x_r' · k_r'ᵀ + γ · Σ_r x_r · k_rᵀ` with x' and k' of the row before, `y_r = S · q_r + d · x_r`.
///
/// `x` `[rows, n_heads · head_dim]`, `b` and `c` (normed) `[rows, rank · n_groups · d_state]`, `dt`, `a` and `trap` (raw)
/// `[rows, n_heads]`, `angle` (raw, for all heads) `[rows, n_angles]`; gives `[rows, n_heads, rank, head_dim]`.
#[expect(clippy::too_many_arguments, reason = "an op's operands and its state")]
pub fn mamba3<T: Real>(
    x: &[T],
    b: &[T],
    c: &[T],
    dt: &[T],
    a: &[T],
    trap: &[T],
    angle: &[T],
    params: &Mamba3Params<'_, T>,
    shape: &Mamba3Shape,
    state: Mamba3State<'_, T>,
) -> Vec<T> {
    let &Mamba3Shape { n_heads, head_dim, d_state, n_angles, .. } = shape;
    let mut y = Vec::with_capacity(dt.len() * shape.rank * head_dim);
    for row in 0..dt.len() / n_heads {
        for head in 0..n_heads {
            let at = row * n_heads + head;
            let step = shape.step(dt[at], params.dt_bias[head], a[at], trap[at]);
            let angles = &mut state.angle[part(head, n_angles)];
            shape.advance(angles, &angle[part(row, n_angles)], step.dt);
            let k = shape.turned(&b[shape.bc(row)], params.b_bias, head, angles);
            let q = shape.turned(&c[shape.bc(row)], params.c_bias, head, angles);
            let x = &x[part(at, head_dim)];
            let (last_k, last_x) = (&mut state.k[shape.key(head)], &mut state.x[part(head, head_dim)]);
            let (inputs, last_inputs) =
                (shape.inputs(x, params.mimo_x, head), shape.inputs(last_x, params.mimo_x, head));

            let s = &mut state.s[shape.states(head)];
            s.iter_mut().for_each(|s| *s = step.decay() * *s);
            add_products(s, step.decay() * step.before(), &last_inputs, last_k, shape);
            add_products(s, step.now(), &inputs, &k, shape);
            for (q, inputs) in q.chunks_exact(d_state).zip(inputs.chunks_exact(head_dim)) {
                let read = s.chunks_exact(d_state).zip(inputs).map(|(s, &x)| dot(s, q) + params.d[head] * x);
                y.extend(read);
            }
            last_k.copy_from_slice(&k);
            last_x.copy_from_slice(x);
        }
    }
    y
}

/// `S += scale · Σ_r x_r · k_rᵀ`.
fn add_products<T: Real>(s: &mut [T], scale: T, x: &[T], k: &[T], shape: &Mamba3Shape) {
    for (x, k) in x.chunks_exact(shape.head_dim).zip(k.chunks_exact(shape.d_state)) {
        for (s, &x) in s.chunks_exact_mut(shape.d_state).zip(x) {
            s.iter_mut().zip(k).for_each(|(s, &k)| *s += scale * x * k);
        }
    }
}

/// As [`mamba3`], `chunk` rows at a time, each chunk as products of matrices.
///
/// What a row leaves for the next one is added with its own part: `γ_s + (1 - λ_{s+1})Δ_{s+1}` for both, and of the last
/// row γ alone. Rows then read only what lies before them, and their own input through `γ_t · (q_t·k_t)` beside that.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and the length of a chunk")]
pub fn mamba3_chunked<T: Real>(
    x: &[T],
    b: &[T],
    c: &[T],
    dt: &[T],
    a: &[T],
    trap: &[T],
    angle: &[T],
    params: &Mamba3Params<'_, T>,
    shape: &Mamba3Shape,
    state: Mamba3State<'_, T>,
    chunk: usize,
) -> Vec<T> {
    let &Mamba3Shape { n_heads, head_dim, d_state, rank, n_angles, .. } = shape;
    let rows = dt.len() / n_heads;
    let mut y = vec![T::default(); rows * n_heads * rank * head_dim];
    for head in 0..n_heads {
        let (mut q, mut k, mut v, mut steps) = (vec![], vec![], vec![], vec![]);
        let angles = &mut state.angle[part(head, n_angles)];
        for row in 0..rows {
            let at = row * n_heads + head;
            let step = shape.step(dt[at], params.dt_bias[head], a[at], trap[at]);
            shape.advance(angles, &angle[part(row, n_angles)], step.dt);
            k.extend(shape.turned(&b[shape.bc(row)], params.b_bias, head, angles));
            q.extend(shape.turned(&c[shape.bc(row)], params.c_bias, head, angles));
            v.extend(shape.inputs(&x[part(at, head_dim)], params.mimo_x, head));
            steps.push(step);
        }
        let Some(first) = steps.first() else { continue };
        let (last_k, last_x) = (&mut state.k[shape.key(head)], &mut state.x[part(head, head_dim)]);
        let s = &mut state.s[shape.states(head)];
        add_products(s, first.before(), &shape.inputs(last_x, params.mimo_x, head), last_k, shape);

        let log_decay: Vec<T> = steps.iter().map(Step::log_decay).collect();
        let left = steps.iter().skip(1).map(Step::before).chain([T::default()]);
        let scale: Vec<T> = steps.iter().zip(left).map(|(step, left)| step.now() + left).collect();
        for first in (0..rows).step_by(chunk) {
            let rows = first..(first + chunk).min(rows);
            let (keys, values) = (
                rows.start * rank * d_state..rows.end * rank * d_state,
                rows.start * rank * head_dim..rows.end * rank * head_dim,
            );
            let piece = Chunk {
                q: &q[keys.clone()],
                k: &k[keys],
                v: &v[values],
                log_decay: &log_decay[rows.clone()],
                scale: &scale[rows.clone()],
                d_state,
                head_dim,
                rank,
                own: false,
            };
            let out = scan_chunk(&piece, s);
            for (row, out) in rows.zip(out.chunks_exact(rank * head_dim)) {
                y[shape.input(row * n_heads + head)].copy_from_slice(out);
            }
        }
        for (row, step) in steps.iter().enumerate() {
            let (q, k, x) = (&q[shape.key(row)], &k[shape.key(row)], &v[shape.input(row)]);
            let y = &mut y[shape.input(row * n_heads + head)];
            for (r, (y, q)) in y.chunks_exact_mut(head_dim).zip(q.chunks_exact(d_state)).enumerate() {
                y.iter_mut().zip(&x[r * head_dim..]).for_each(|(y, &x)| *y += params.d[head] * x);
                for (k, x) in k.chunks_exact(d_state).zip(x.chunks_exact(head_dim)) {
                    let weight = step.now() * dot(q, k);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
                }
            }
        }
        last_k.copy_from_slice(&k[shape.key(rows - 1)]);
        last_x.copy_from_slice(&x[part((rows - 1) * n_heads + head, head_dim)]);
    }
    y
}
