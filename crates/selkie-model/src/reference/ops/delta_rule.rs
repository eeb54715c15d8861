//! The gated delta rule (Qwen3-Next's linear attention).

use std::ops::Range;

use super::{
    attention::dot,
    chunk::{Chunk, scan_chunk},
    sigmoid, sigmoid_derivative, softplus, softplus_derivative,
};
use crate::{reference::Real, spec::DeltaShape};

/// Added to the sum of squares of a query or key before the root.
const L2_EPS: f64 = 1e-6;

impl DeltaShape {
    /// Where the query that value head `head` reads with lies in rows of q | k | v.
    fn q(&self, row: usize, head: usize) -> Range<usize> {
        let start = row * self.width() + head * self.n_k_heads / self.n_v_heads * self.k_dim;
        start..start + self.k_dim
    }

    fn k(&self, row: usize, head: usize) -> Range<usize> {
        let q = self.q(row, head);
        let behind = self.n_k_heads * self.k_dim;
        q.start + behind..q.end + behind
    }

    fn v(&self, row: usize, head: usize) -> Range<usize> {
        let start = row * self.width() + 2 * self.n_k_heads * self.k_dim + head * self.v_dim;
        start..start + self.v_dim
    }

    /// Where the states of value head `head` lie in `[n_v_heads, k_dim, v_dim]`.
    fn states(&self, head: usize) -> Range<usize> {
        let each = self.k_dim * self.v_dim;
        head * each..(head + 1) * each
    }

    /// What a query is multiplied by: `1 / sqrt(k_dim)`.
    fn scale<T: Real>(&self) -> T {
        T::from_f64(1.0) / T::from_usize(self.k_dim).sqrt()
    }
}

/// For each value head, row after row, with `β = σ(b)`, `g = a_weight · softplus(a + dt_bias)`, q and k of length 1 and q
/// times `1 / sqrt(k_dim)`: `S = e^g · S`, `S = S + k · (β · (v - Sᵀ·k))ᵀ`, `y = Sᵀ · q`.
///
/// `qkv` `[rows, 2 · n_k_heads · k_dim + n_v_heads · v_dim]` with columns q | k | v, `b` and `a` (raw) `[rows, n_v_heads]`,
/// `a_weight` (negative) and `dt_bias` `[n_v_heads]`, `state` `[n_v_heads, k_dim, v_dim]`, in and out; gives
/// `[rows, n_v_heads · v_dim]`.
pub fn delta_rule<T: Real>(
    qkv: &[T],
    b: &[T],
    a: &[T],
    a_weight: &[T],
    dt_bias: &[T],
    shape: &DeltaShape,
    state: &mut [T],
) -> Vec<T> {
    let &DeltaShape { n_v_heads, v_dim, .. } = shape;
    let mut y = Vec::with_capacity(b.len() * v_dim);
    for row in 0..b.len() / n_v_heads {
        for head in 0..n_v_heads {
            let (q, k) = (unit(&qkv[shape.q(row, head)]), unit(&qkv[shape.k(row, head)]));
            let v = &qkv[shape.v(row, head)];
            let at = row * n_v_heads + head;
            let decay = (a_weight[head] * softplus(a[at] + dt_bias[head])).exp();
            let beta = sigmoid(b[at]);

            let s = &mut state[shape.states(head)];
            s.iter_mut().for_each(|s| *s = decay * *s);
            let known = read(s, &k, v_dim);
            let news: Vec<T> = v.iter().zip(known).map(|(&v, known)| beta * (v - known)).collect();
            for (s, &k) in s.chunks_exact_mut(v_dim).zip(&k) {
                s.iter_mut().zip(&news).for_each(|(s, &news)| *s += k * news);
            }
            y.extend(read(s, &q, v_dim).iter().map(|&y| shape.scale::<T>() * y));
        }
    }
    y
}

/// As [`delta_rule`], `chunk` rows at a time, each chunk as products of matrices.
///
/// What a row adds, `n_t = β_t · (v_t - e^{g_t} · S_{t-1}ᵀ·k_t)`, hangs on what those before it have added. With `L_ts` the sum
/// of `g` from behind row s to row t and `ℓ_t` that from the chunk's start, S as it was there:
/// `n_t = β_t · (v_t - e^{ℓ_t} · Sᵀ·k_t - Σ_{s<t} e^{L_ts} · (k_t·k_s) · n_s)`, a triangular system. The n found, the rest is
/// a chunk of a plain recurrence with n for values.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and the length of a chunk")]
pub fn delta_rule_chunked<T: Real>(
    qkv: &[T],
    b: &[T],
    a: &[T],
    a_weight: &[T],
    dt_bias: &[T],
    shape: &DeltaShape,
    state: &mut [T],
    chunk: usize,
) -> Vec<T> {
    let &DeltaShape { n_v_heads, k_dim, v_dim, .. } = shape;
    let rows = b.len() / n_v_heads;
    let mut y = vec![T::default(); rows * n_v_heads * v_dim];
    for head in 0..n_v_heads {
        for first in (0..rows).step_by(chunk) {
            let rows = first..(first + chunk).min(rows);
            let (mut q, mut k, mut news, mut log_decay) = (vec![], vec![], vec![], vec![]);
            let s = &mut state[shape.states(head)];
            for row in rows.clone() {
                let at = row * n_v_heads + head;
                q.extend(unit(&qkv[shape.q(row, head)]).iter().map(|&q| shape.scale::<T>() * q));
                let key = unit(&qkv[shape.k(row, head)]);
                log_decay.push(a_weight[head] * softplus(a[at] + dt_bias[head]));
                let mut known = vec![T::default(); v_dim];
                let mut since = T::default();
                for s in (0..row - first).rev() {
                    since += log_decay[s + 1];
                    let weight = since.exp() * dot(&key, &k[s * k_dim..][..k_dim]);
                    let added: &[T] = &news[s * v_dim..][..v_dim];
                    known.iter_mut().zip(added).for_each(|(known, &n)| *known += weight * n);
                }
                since += log_decay[0];
                let beta = sigmoid(b[at]);
                let old = read(s, &key, v_dim);
                let v = qkv[shape.v(row, head)].iter();
                news.extend(v.zip(old).zip(known).map(|((&v, old), known)| beta * (v - since.exp() * old - known)));
                k.extend(key);
            }
            let piece = Chunk {
                q: &q,
                k: &k,
                v: &news,
                log_decay: &log_decay,
                scale: &vec![T::from_f64(1.0); log_decay.len()],
                d_state: k_dim,
                head_dim: v_dim,
                rank: 1,
                own: true,
            };
            let mut turned = transposed(s, v_dim);
            let out = scan_chunk(&piece, &mut turned);
            s.copy_from_slice(&transposed(&turned, k_dim));
            for (row, out) in rows.zip(out.chunks_exact(v_dim)) {
                y[(row * n_v_heads + head) * v_dim..][..v_dim].copy_from_slice(out);
            }
        }
    }
    y
}

/// `[_, width]` to `[width, _]`.
fn transposed<T: Real>(values: &[T], width: usize) -> Vec<T> {
    (0..width).flat_map(|i| values.iter().skip(i).step_by(width).copied()).collect()
}

/// `Sᵀ · q`, `[v_dim]`.
fn read<T: Real>(s: &[T], q: &[T], v_dim: usize) -> Vec<T> {
    let mut out = vec![T::default(); v_dim];
    for (s, &q) in s.chunks_exact(v_dim).zip(q) {
        out.iter_mut().zip(s).for_each(|(out, &s)| *out += q * s);
    }
    out
}

/// `x / sqrt(Σ x² + eps)`.
fn unit<T: Real>(x: &[T]) -> Vec<T> {
    let length = (dot(x, x) + T::from_f64(L2_EPS)).sqrt();
    x.iter().map(|&x| x / length).collect()
}

/// `dx` of [`unit`] with `n` its result: `(dn - n·⟨n, dn⟩) / sqrt(Σ x² + eps)`.
fn unit_backward<T: Real>(x: &[T], dn: &[T]) -> Vec<T> {
    let (n, length) = (unit(x), (dot(x, x) + T::from_f64(L2_EPS)).sqrt());
    let along = dot(&n, dn);
    n.iter().zip(dn).map(|(&n, &dn)| (dn - n * along) / length).collect()
}

/// What [`delta_rule_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaGradients<T> {
    /// `[rows, 2 · n_k_heads · k_dim + n_v_heads · v_dim]`.
    pub qkv: Vec<T>,
    /// `[rows, n_v_heads]`, of the raw values.
    pub b: Vec<T>,
    /// `[rows, n_v_heads]`, of the raw values.
    pub a: Vec<T>,
    /// `[n_v_heads]`.
    pub a_weight: Vec<T>,
    /// `[n_v_heads]`.
    pub dt_bias: Vec<T>,
    /// `[n_v_heads, k_dim, v_dim]`: of the state before the first row.
    pub state: Vec<T>,
}

/// The gradients of [`delta_rule`] from those of its result, `dy` `[rows, n_v_heads · v_dim]`, and of the state after it,
/// `dstate`; `state` is the one before it.
///
/// From the last row to the first, with `dS` what comes back from the rows behind, D the decayed state, `e = v - Dᵀ·k` and
/// `n = β·e`: `dS += q · dyᵀ`, `dq = S · dy`, `dn = dSᵀ · k`, `dβ = ⟨dn, e⟩`, `dv = β·dn`, `dk = dS · n - D · dv`,
/// `dD = dS - k · dvᵀ`, `dg = ⟨dD, D⟩`, and for the row before `dS = e^g · dD`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn delta_rule_backward<T: Real>(
    qkv: &[T],
    b: &[T],
    a: &[T],
    a_weight: &[T],
    dt_bias: &[T],
    shape: &DeltaShape,
    state: &[T],
    dy: &[T],
    dstate: &[T],
) -> DeltaGradients<T> {
    let &DeltaShape { n_v_heads, v_dim, .. } = shape;
    let rows = b.len() / n_v_heads;
    // The states before each row, and after the last.
    let mut states = vec![state.to_vec()];
    for row in 0..rows {
        let mut next = states[row].clone();
        let (wide, narrow) = (shape.width(), row * n_v_heads..(row + 1) * n_v_heads);
        let (b, a) = (&b[narrow.clone()], &a[narrow]);
        delta_rule(&qkv[row * wide..][..wide], b, a, a_weight, dt_bias, shape, &mut next);
        states.push(next);
    }

    let zeros = |n: usize| vec![T::default(); n];
    let mut g = DeltaGradients {
        qkv: zeros(qkv.len()),
        b: zeros(b.len()),
        a: zeros(a.len()),
        a_weight: zeros(n_v_heads),
        dt_bias: zeros(n_v_heads),
        state: dstate.to_vec(),
    };
    for row in (0..rows).rev() {
        for head in 0..n_v_heads {
            let at = row * n_v_heads + head;
            let (raw_q, raw_k) = (&qkv[shape.q(row, head)], &qkv[shape.k(row, head)]);
            let (q, k, v) = (unit(raw_q), unit(raw_k), &qkv[shape.v(row, head)]);
            let size = softplus(a[at] + dt_bias[head]);
            let (decay, beta) = ((a_weight[head] * size).exp(), sigmoid(b[at]));
            let (before, after) = (&states[row][shape.states(head)], &states[row + 1][shape.states(head)]);
            let decayed: Vec<T> = before.iter().map(|&s| decay * s).collect();
            let error: Vec<T> = v.iter().zip(read(&decayed, &k, v_dim)).map(|(&v, known)| v - known).collect();

            let ds = &mut g.state[shape.states(head)];
            let dy: Vec<T> = dy[at * v_dim..][..v_dim].iter().map(|&dy| shape.scale::<T>() * dy).collect();
            for (ds, &q) in ds.chunks_exact_mut(v_dim).zip(&q) {
                ds.iter_mut().zip(&dy).for_each(|(ds, &dy)| *ds += q * dy);
            }
            let dq: Vec<T> = after.chunks_exact(v_dim).map(|s| dot(s, &dy)).collect();
            let dnews = read(ds, &k, v_dim);
            let dv: Vec<T> = dnews.iter().map(|&dn| beta * dn).collect();
            let rows_of_both = ds.chunks_exact(v_dim).zip(decayed.chunks_exact(v_dim));
            let dk: Vec<T> = rows_of_both.map(|(ds, decayed)| beta * dot(ds, &error) - dot(decayed, &dv)).collect();
            for (ds, &k) in ds.chunks_exact_mut(v_dim).zip(&k) {
                ds.iter_mut().zip(&dv).for_each(|(ds, &dv)| *ds += -k * dv);
            }
            let dg = dot(ds, &decayed);
            ds.iter_mut().for_each(|ds| *ds = decay * *ds);

            add_at(&mut g.qkv[shape.q(row, head)], &unit_backward(raw_q, &dq));
            add_at(&mut g.qkv[shape.k(row, head)], &unit_backward(raw_k, &dk));
            add_at(&mut g.qkv[shape.v(row, head)], &dv);
            g.b[at] = dot(&dnews, &error) * sigmoid_derivative(b[at]);
            g.a[at] = dg * a_weight[head] * softplus_derivative(a[at] + dt_bias[head]);
            g.dt_bias[head] += g.a[at];
            g.a_weight[head] += dg * size;
        }
    }
    g
}

fn add_at<T: Real>(to: &mut [T], values: &[T]) {
    to.iter_mut().zip(values).for_each(|(to, &v)| *to += v);
}
