//! Complex state-space duality: the layer that MBJS calls "mamba3".

use std::ops::Range;

use super::{
    chunk::{Chunk, scan_chunk},
    softplus, softplus_derivative,
    ssd::Columns,
};
use crate::{reference::Real, spec::CssdShape};

impl CssdShape {
    fn columns(&self) -> Columns {
        let &Self { n_heads, head_dim, n_groups, d_state } = self;
        Columns { n_heads, head_dim, n_groups, group_width: 2 * d_state }
    }

    /// Where the states of `head` lie in `[n_heads, head_dim, d_state, 2]`.
    fn states(&self, head: usize) -> Range<usize> {
        let each = self.head_dim * self.d_state * 2;
        head * each..(head + 1) * each
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug)]
struct Complex<T> {
    re: T,
    im: T,
}

impl<T: Real> Complex<T> {
    fn new(re: T, im: T) -> Self {
        Self { re, im }
    }

    fn of(pair: &[T]) -> Self {
        Self::new(pair[0], pair[1])
    }

    /// e to this power.
    fn exp(self) -> Self {
        let size = self.re.exp();
        Self::new(size * self.im.cos(), size * self.im.sin())
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
    }

    fn scaled(self, by: T) -> Self {
        Self::new(by * self.re, by * self.im)
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }

    fn conj(self) -> Self {
        Self::new(self.re, -self.im)
    }

    /// The product of two vectors of the plane.
    fn dot(self, other: Self) -> T {
        self.re * other.re + self.im * other.im
    }

    fn add_to(self, pair: &mut [T]) {
        pair[0] += self.re;
        pair[1] += self.im;
    }
}

/// A head's factors at one step: `decay = e^{Δm}` and `input = (decay - 1) · e^{-m}`, where `m` is `ℓ + iφ` of the head.
///
/// MBJS takes `m` for A in the one and for `ln A` in the other; what it has computed so its models have learnt.
struct Factors<T> {
    decay: Complex<T>,
    input: Complex<T>,
}

impl<T: Real> Factors<T> {
    fn new(m: Complex<T>, dt: T) -> Self {
        let decay = m.scaled(dt).exp();
        Self { decay, input: less_one(decay).times(inverse(m)) }
    }

    /// `(dm, dΔ)` from the gradients of the factors.
    fn backward(m: Complex<T>, dt: T, mut ddecay: Complex<T>, dinput: Complex<T>) -> (Complex<T>, T) {
        let decay = m.scaled(dt).exp();
        ddecay = ddecay.plus(dinput.times(inverse(m).conj()));
        let dinverse = dinput.times(less_one(decay).conj());
        // Of Δm, the exponent of the decay, and of -m, that of the inverse.
        let dexponent = ddecay.times(decay.conj());
        let dnegative = dinverse.times(inverse(m).conj());
        (dexponent.scaled(dt).plus(dnegative.scaled(T::from_f64(-1.0))), dexponent.dot(m))
    }
}

fn less_one<T: Real>(z: Complex<T>) -> Complex<T> {
    Complex::new(z.re - T::from_f64(1.0), z.im)
}

/// `e^{-m}`.
fn inverse<T: Real>(m: Complex<T>) -> Complex<T> {
    m.scaled(T::from_f64(-1.0)).exp()
}

/// Complex states `s = decay · s + input · B · x` and `y = Re(Σ_n conj(C) · s) + d · x` for each head, row after row. With
/// `Δ = softplus(dt + dt_bias)` and `m = ℓ + iφ`: `decay = e^{Δm}`, `input = (decay - 1) · e^{-m}`.
///
/// `xbc` `[rows, n_heads · head_dim + 4 · n_groups · d_state]` with columns x | B | C, B and C in pairs (re, im), `dt` (raw)
/// `[rows, n_heads]`, `a_log` `[n_heads, 2]` pairs (ℓ, φ), `d` and `dt_bias` `[n_heads]`, `state`
/// `[n_heads, head_dim, d_state, 2]`, in and out; gives `[rows, n_heads · head_dim]`.
pub fn cssd<T: Real>(
    xbc: &[T],
    dt: &[T],
    a_log: &[T],
    d: &[T],
    dt_bias: &[T],
    shape: &CssdShape,
    state: &mut [T],
) -> Vec<T> {
    let columns = shape.columns();
    let mut y = Vec::with_capacity(dt.len() * shape.head_dim);
    for (row, dt) in dt.chunks_exact(shape.n_heads).enumerate() {
        for head in 0..shape.n_heads {
            let [x, b, c] = [columns.x(row, head), columns.b(row, head), columns.c(row, head)].map(|at| &xbc[at]);
            let factors = Factors::new(Complex::of(&a_log[2 * head..]), softplus(dt[head] + dt_bias[head]));
            for (&x, states) in x.iter().zip(state[shape.states(head)].chunks_exact_mut(2 * shape.d_state)) {
                let mut sum = d[head] * x;
                for ((s, b), c) in states.chunks_exact_mut(2).zip(b.chunks_exact(2)).zip(c.chunks_exact(2)) {
                    let entering = factors.input.times(Complex::of(b)).scaled(x);
                    let next = factors.decay.times(Complex::of(s)).plus(entering);
                    (s[0], s[1]) = (next.re, next.im);
                    sum += c[0] * next.re + c[1] * next.im;
                }
                y.push(sum);
            }
        }
    }
    y
}

/// As [`cssd`], `chunk` rows at a time, each chunk as products of matrices.
///
/// Seen from a plane that turns with the states, by `θ_t = φ · (Δ_1 + … + Δ_t)` since the chunk's start, they only decay,
/// by `e^{Δℓ}`: `e^{-iθ}·input·B` enters and `e^{-iθ}·C` reads, each pair as two real states. Then the states turn on.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and the length of a chunk")]
pub fn cssd_chunked<T: Real>(
    xbc: &[T],
    dt: &[T],
    a_log: &[T],
    d: &[T],
    dt_bias: &[T],
    shape: &CssdShape,
    state: &mut [T],
    chunk: usize,
) -> Vec<T> {
    let &CssdShape { n_heads, head_dim, d_state, .. } = shape;
    let columns = shape.columns();
    let rows = dt.len() / n_heads;
    let mut y = vec![T::default(); rows * n_heads * head_dim];
    for head in 0..n_heads {
        let m = Complex::of(&a_log[2 * head..]);
        for first in (0..rows).step_by(chunk) {
            let rows = first..(first + chunk).min(rows);
            let (mut q, mut k, mut v, mut log_decay) = (vec![], vec![], vec![], vec![]);
            let mut turn = Complex::new(T::from_f64(1.0), T::default());
            for row in rows.clone() {
                let step_size = softplus(dt[row * n_heads + head] + dt_bias[head]);
                turn = turn.times(Complex::new(T::default(), step_size * m.im).exp());
                let input = Factors::new(m, step_size).input;
                let seen = |pair: &[T], factor: Complex<T>| {
                    let seen = turn.conj().times(factor).times(Complex::of(pair));
                    [seen.re, seen.im]
                };
                k.extend(xbc[columns.b(row, head)].chunks_exact(2).flat_map(|b| seen(b, input)));
                let one = Complex::new(T::from_f64(1.0), T::default());
                q.extend(xbc[columns.c(row, head)].chunks_exact(2).flat_map(|c| seen(c, one)));
                v.extend_from_slice(&xbc[columns.x(row, head)]);
                log_decay.push(step_size * m.re);
            }
            let piece = Chunk {
                q: &q,
                k: &k,
                v: &v,
                log_decay: &log_decay,
                scale: &vec![T::from_f64(1.0); log_decay.len()],
                d_state: 2 * d_state,
                head_dim,
                rank: 1,
                own: true,
            };
            let states = &mut state[shape.states(head)];
            let out = scan_chunk(&piece, states);
            for s in states.chunks_exact_mut(2) {
                let turned = turn.times(Complex::of(s));
                (s[0], s[1]) = (turned.re, turned.im);
            }
            for ((row, out), x) in rows.zip(out.chunks_exact(head_dim)).zip(v.chunks_exact(head_dim)) {
                let y = &mut y[(row * n_heads + head) * head_dim..][..head_dim];
                y.iter_mut().zip(out).zip(x).for_each(|((y, &out), &x)| *y = out + d[head] * x);
            }
        }
    }
    y
}

/// What [`cssd_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct CssdGradients<T> {
    /// `[rows, n_heads · head_dim + 4 · n_groups · d_state]`.
    pub xbc: Vec<T>,
    /// `[rows, n_heads]`, of the raw values.
    pub dt: Vec<T>,
    /// `[n_heads, 2]`.
    pub a_log: Vec<T>,
    /// `[n_heads]`.
    pub d: Vec<T>,
    /// `[n_heads]`.
    pub dt_bias: Vec<T>,
    /// `[n_heads, head_dim, d_state, 2]`: of the state before the first row.
    pub state: Vec<T>,
}

/// The gradients of [`cssd`] from those of its result, `dy` `[rows, n_heads · head_dim]`, and of the state after it,
/// `dstate`; `state` is the one before it.
///
/// The gradient of a complex number is that of its parts, `∂re + i·∂im`; through a product `z = u·v` it is
/// `du = dz·conj(v)`. From the last row to the first, with `ds` what comes back from the rows behind: `ds += dy·C`,
/// `dC = dy·s`, `dx = Σ Re(conj(ds)·input·B) + d·dy`, `dB = Σ ds·conj(input)·x`, `ddecay = Σ ds·conj(s')`,
/// `dinput = Σ ds·conj(B)·x` with s' the state before the row, and for the row before `ds = ds·conj(decay)`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn cssd_backward<T: Real>(
    xbc: &[T],
    dt: &[T],
    a_log: &[T],
    d: &[T],
    dt_bias: &[T],
    shape: &CssdShape,
    state: &[T],
    dy: &[T],
    dstate: &[T],
) -> CssdGradients<T> {
    let &CssdShape { n_heads, head_dim, d_state, .. } = shape;
    let columns = shape.columns();
    let rows = dt.len() / n_heads;
    // The states before each row, and after the last.
    let mut states = vec![state.to_vec()];
    for row in 0..rows {
        let mut next = states[row].clone();
        let (xbc, dt) = (&xbc[row * columns.width()..][..columns.width()], &dt[row * n_heads..][..n_heads]);
        cssd(xbc, dt, a_log, d, dt_bias, shape, &mut next);
        states.push(next);
    }

    let zeros = |n: usize| vec![T::default(); n];
    let mut g = CssdGradients {
        xbc: zeros(xbc.len()),
        dt: zeros(dt.len()),
        a_log: zeros(a_log.len()),
        d: zeros(n_heads),
        dt_bias: zeros(n_heads),
        state: dstate.to_vec(),
    };
    let none = Complex::new(T::default(), T::default());
    for row in (0..rows).rev() {
        for head in 0..n_heads {
            let at = row * n_heads + head;
            let (x_at, b_at, c_at) = (columns.x(row, head), columns.b(row, head), columns.c(row, head));
            let (m, raw) = (Complex::of(&a_log[2 * head..]), dt[at] + dt_bias[head]);
            let factors = Factors::new(m, softplus(raw));
            let (mut ddecay, mut dinput) = (none, none);
            for p in 0..head_dim {
                let (x, dy) = (xbc[x_at.start + p], dy[at * head_dim + p]);
                g.d[head] += dy * x;
                g.xbc[x_at.start + p] += d[head] * dy;
                for n in 0..d_state {
                    let own = shape.states(head).start + 2 * (p * d_state + n);
                    let (b_at, c_at) = (b_at.start + 2 * n, c_at.start + 2 * n);
                    let (b, c) = (Complex::of(&xbc[b_at..]), Complex::of(&xbc[c_at..]));
                    let (before, after) = (Complex::of(&states[row][own..]), Complex::of(&states[row + 1][own..]));
                    let ds = Complex::of(&g.state[own..]).plus(c.scaled(dy));
                    after.scaled(dy).add_to(&mut g.xbc[c_at..]);
                    g.xbc[x_at.start + p] += ds.dot(factors.input.times(b));
                    ds.times(factors.input.conj()).scaled(x).add_to(&mut g.xbc[b_at..]);
                    ddecay = ddecay.plus(ds.times(before.conj()));
                    dinput = dinput.plus(ds.times(b.conj()).scaled(x));
                    let back = ds.times(factors.decay.conj());
                    (g.state[own], g.state[own + 1]) = (back.re, back.im);
                }
            }
            let (dm, dsize) = Factors::backward(m, softplus(raw), ddecay, dinput);
            dm.add_to(&mut g.a_log[2 * head..]);
            g.dt[at] = dsize * softplus_derivative(raw);
            g.dt_bias[head] += g.dt[at];
        }
    }
    g
}
