//! The gradients of Mamba-3.

use std::f64::consts::PI;

use super::{
    Mamba3Params, Mamba3Shape, Mamba3Values,
    attention::dot,
    mamba3,
    mamba3::{Step, part},
    rope_backward, sigmoid_derivative, softplus_derivative,
};
use crate::reference::Real;

/// What [`mamba3_backward`] gives, each in the shape of what it is the gradient of.
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba3Gradients<T> {
    /// `[rows, n_heads · head_dim]`.
    pub x: Vec<T>,
    /// `[rows, rank · n_groups · d_state]`.
    pub b: Vec<T>,
    /// `[rows, rank · n_groups · d_state]`.
    pub c: Vec<T>,
    /// `[rows, n_heads]`, of the raw values.
    pub dt: Vec<T>,
    /// `[rows, n_heads]`, of the raw values.
    pub a: Vec<T>,
    /// `[rows, n_heads]`, of the raw values.
    pub trap: Vec<T>,
    /// `[rows, n_angles]`, of the raw values.
    pub angle: Vec<T>,
    /// `[n_heads]`.
    pub dt_bias: Vec<T>,
    /// `[n_heads, rank, d_state]`.
    pub b_bias: Vec<T>,
    /// `[n_heads, rank, d_state]`.
    pub c_bias: Vec<T>,
    /// `[n_heads]`.
    pub d: Vec<T>,
    /// `[n_heads, rank, head_dim]`, where it is there.
    pub mimo_x: Option<Vec<T>>,
    /// Of the state before the first row.
    pub state: Mamba3Values<T>,
}

/// The gradients of [`mamba3`] from those of its result, `dy` `[rows, n_heads, rank, head_dim]`, and of the state after it,
/// `dstate`; `state` is the one before it.
///
/// A row is `S = α·(S' + ε·Σ_r x_r'·k_r'ᵀ) + γ·Σ_r x_r·k_rᵀ` with `ε = (1 - λ)Δ`. From the last row to the first, with `dS`
/// what comes back from the rows behind, and so dk and dx of what this row leaves for the next:
///
/// - `dS += Σ_r dy_r·q_rᵀ`, `dq_r = Sᵀ·dy_r`, `dx_r = d·dy_r + γ·dS·k_r`, `dk_r += γ·dSᵀ·x_r`;
/// - `dγ = Σ_r x_rᵀ·dS·k_r`, `dε = α·Σ_r x_r'ᵀ·dS·k_r'`, `dln α = α·⟨dS, S'⟩ + ε·dε`;
/// - `dΔ = A·dln α + λ·dγ + (1 - λ)·dε`, `dλ = Δ·(dγ - dε)`, `dA = Δ·dln α`;
/// - with `(u, v)` a turned pair, `dφ = dv·u - du·v` for all keys and queries; the angle carries it to all rows before,
///   and each row's rate and Δ have their part in the sum;
/// - for the row before: `dS = α·dS`, `dk_r' = αε·dSᵀ·x_r'`, `dx_r' = αε·dS·k_r'`.
#[expect(clippy::too_many_arguments, reason = "an op's operands, its state and their gradients")]
pub fn mamba3_backward<T: Real>(
    x: &[T],
    b: &[T],
    c: &[T],
    dt: &[T],
    a: &[T],
    trap: &[T],
    angle: &[T],
    params: &Mamba3Params<'_, T>,
    shape: &Mamba3Shape,
    state: &Mamba3Values<T>,
    dy: &[T],
    dstate: &Mamba3Values<T>,
) -> Mamba3Gradients<T> {
    let &Mamba3Shape { n_heads, head_dim, n_groups, d_state, rank, n_angles, .. } = shape;
    let rows = dt.len() / n_heads;
    // The states before each row, and after the last.
    let mut states = vec![state.clone()];
    for row in 0..rows {
        let mut next = states[row].clone();
        let [dt, a, trap] = [dt, a, trap].map(|values| &values[part(row, n_heads)]);
        let (x, angle) = (&x[part(row, n_heads * head_dim)], &angle[part(row, n_angles)]);
        mamba3(x, &b[shape.bc(row)], &c[shape.bc(row)], dt, a, trap, angle, params, shape, next.lend());
        states.push(next);
    }

    let zeros = |like: &[T]| vec![T::default(); like.len()];
    let mut g = Mamba3Gradients {
        x: zeros(x),
        b: zeros(b),
        c: zeros(c),
        dt: zeros(dt),
        a: zeros(a),
        trap: zeros(trap),
        angle: zeros(angle),
        dt_bias: zeros(params.dt_bias),
        b_bias: zeros(params.b_bias),
        c_bias: zeros(params.c_bias),
        d: zeros(params.d),
        mimo_x: params.mimo_x.map(zeros),
        state: dstate.clone(),
    };
    let (one, pi) = (T::from_f64(1.0), T::from_f64(PI));
    for row in (0..rows).rev() {
        let (before, after) = (&states[row], &states[row + 1]);
        for head in 0..n_heads {
            let at = row * n_heads + head;
            let step = shape.step(dt[at], params.dt_bias[head], a[at], trap[at]);
            let angles = &after.angle[part(head, n_angles)];
            let (k, q) = (&after.k[shape.key(head)], shape.turned(&c[shape.bc(row)], params.c_bias, head, angles));
            let (last_k, last_x) = (&before.k[shape.key(head)], &before.x[part(head, head_dim)]);
            let inputs = shape.inputs(&x[part(at, head_dim)], params.mimo_x, head);
            let last_inputs = shape.inputs(last_x, params.mimo_x, head);
            let dy = &dy[shape.input(at)];

            // Through what the states are read with.
            let ds = &mut g.state.s[shape.states(head)];
            add_outer(ds, dy, &q, shape);
            let mut dq = times_inputs(&after.s[shape.states(head)], dy, shape);
            g.d[head] += dot(dy, &inputs);

            // Through the states.
            let (read, last_read) = (times_keys(ds, k, shape), times_keys(ds, last_k, shape));
            let dnow = dot(&inputs, &read);
            let dbefore = step.decay() * dot(&last_inputs, &last_read);
            let dlog_decay = step.decay() * dot(ds, &before.s[shape.states(head)]) + step.before() * dbefore;
            let left = step.decay() * step.before();
            let dinputs: Vec<T> = dy.iter().zip(read).map(|(&dy, v)| params.d[head] * dy + step.now() * v).collect();
            let dlast_inputs: Vec<T> = last_read.into_iter().map(|v| left * v).collect();
            let carried = &mut g.state.k[shape.key(head)];
            let mut dk: Vec<T> = carried.to_vec();
            add_scaled(&mut dk, step.now(), &times_inputs(ds, &inputs, shape));
            carried.fill(T::default());
            add_scaled(carried, left, &times_inputs(ds, &last_inputs, shape));
            ds.iter_mut().for_each(|ds| *ds = step.decay() * *ds);

            // Through the inputs, of which one a row is kept for the next.
            let carried = &mut g.state.x[part(head, head_dim)];
            let dx = &mut g.x[part(at, head_dim)];
            dx.copy_from_slice(carried);
            carried.fill(T::default());
            match (params.mimo_x, &mut g.mimo_x) {
                (Some(w), Some(dw)) => {
                    let (w, dw) = (&w[shape.input(head)], &mut dw[shape.input(head)]);
                    for i in 0..rank * head_dim {
                        dx[i % head_dim] += w[i] * dinputs[i];
                        carried[i % head_dim] += w[i] * dlast_inputs[i];
                        dw[i] += dinputs[i] * x[at * head_dim + i % head_dim] + dlast_inputs[i] * last_x[i % head_dim];
                    }
                }
                _ => {
                    add_scaled(dx, one, &dinputs);
                    add_scaled(carried, one, &dlast_inputs);
                }
            }

            // Through the rotation.
            let dangle = &mut g.state.angle[part(head, n_angles)];
            for (turned, dturned) in [(k, &dk), (&q, &dq)] {
                for (turned, dturned) in turned.chunks_exact(d_state).zip(dturned.chunks_exact(d_state)) {
                    for (i, dangle) in dangle.iter_mut().enumerate() {
                        let (u, v) = shape.pair(i);
                        *dangle += dturned[v] * turned[u] - dturned[u] * turned[v];
                    }
                }
            }
            let rotation = shape.rotation(angles);
            let group = head * n_groups / n_heads;
            for (dturned, d, dbias) in [(&mut dk, &mut g.b, &mut g.b_bias), (&mut dq, &mut g.c, &mut g.c_bias)] {
                for (r, d_one) in dturned.chunks_exact_mut(d_state).enumerate() {
                    rope_backward(d_one, &rotation, shape.pairing);
                    add_scaled(&mut d[shape.bc(row)][part(r * n_groups + group, d_state)], one, d_one);
                    add_scaled(&mut dbias[shape.key(head)][part(r, d_state)], one, d_one);
                }
            }

            // Through the step's scalars.
            let Step { dt: size, trap: share, rate } = step;
            let mut dsize = rate * dlog_decay + share * dnow + (one - share) * dbefore;
            for (i, &dangle) in dangle.iter().enumerate() {
                let turn = angle[row * n_angles + i].tanh();
                dsize += pi * turn * dangle;
                g.angle[row * n_angles + i] += pi * size * (one - turn * turn) * dangle;
            }
            g.dt[at] = dsize * softplus_derivative(dt[at] + params.dt_bias[head]);
            g.dt_bias[head] += g.dt[at];
            g.trap[at] = size * (dnow - dbefore) * sigmoid_derivative(trap[at]);
            let floored = shape.a_activation.of(a[at]) < T::from_f32(shape.a_floor);
            let slope = if floored { T::default() } else { shape.a_activation.derivative(a[at]) };
            g.a[at] = -size * dlog_decay * slope;
        }
    }
    g
}

/// `S += Σ_r x_r · k_rᵀ`.
fn add_outer<T: Real>(s: &mut [T], x: &[T], k: &[T], shape: &Mamba3Shape) {
    for (x, k) in x.chunks_exact(shape.head_dim).zip(k.chunks_exact(shape.d_state)) {
        s.chunks_exact_mut(shape.d_state).zip(x).for_each(|(s, &x)| add_scaled(s, x, k));
    }
}

/// `S · k_r` for each rank, `[rank, head_dim]`.
fn times_keys<T: Real>(s: &[T], k: &[T], shape: &Mamba3Shape) -> Vec<T> {
    let n = shape.d_state;
    k.chunks_exact(n).flat_map(|k| s.chunks_exact(n).map(move |s| dot(s, k))).collect()
}

/// `Sᵀ · x_r` for each rank, `[rank, d_state]`.
fn times_inputs<T: Real>(s: &[T], x: &[T], shape: &Mamba3Shape) -> Vec<T> {
    let mut out = vec![T::default(); shape.rank * shape.d_state];
    for (x, out) in x.chunks_exact(shape.head_dim).zip(out.chunks_exact_mut(shape.d_state)) {
        s.chunks_exact(shape.d_state).zip(x).for_each(|(s, &x)| add_scaled(out, x, s));
    }
    out
}

/// `to += scale · values`.
fn add_scaled<T: Real>(to: &mut [T], scale: T, values: &[T]) {
    to.iter_mut().zip(values).for_each(|(to, &v)| *to += scale * v);
}
