//! A sequence in one piece, in pieces with the state carried, row by row and in chunks: one result and one state.

use std::ops::Range;

use proptest::prelude::*;
use selkie_model::{
    reference::{Real, ops::*},
    rope::Pairing,
};

use crate::support::{Seeded, near};

/// How far f32 may be from f64 after long sequences, relative to the largest value.
const F32_BOUND: f64 = 1e-5;

/// A recurrent op with its operands.
struct Recurrence<T> {
    name: &'static str,
    /// Each with the width of its rows.
    operands: Vec<(Vec<T>, usize)>,
    state: Vec<T>,
    run: Run<T>,
}

/// What an op makes of the rows of its operands and its state: row by row, or in chunks of so many.
type Run<T> = Box<dyn Fn(&[&[T]], &mut Vec<T>, Option<usize>) -> Vec<T>>;

impl<T: Real> Recurrence<T> {
    /// The results of each piece, one after another, and the state after the last.
    fn run(&self, pieces: &[Range<usize>], chunk: Option<usize>) -> (Vec<f64>, Vec<f64>) {
        let mut state = self.state.clone();
        let mut y = vec![];
        for piece in pieces {
            let rows: Vec<&[T]> =
                self.operands.iter().map(|(v, width)| &v[piece.start * width..piece.end * width]).collect();
            y.extend((self.run)(&rows, &mut state, chunk));
        }
        let wide = |values: Vec<T>| values.into_iter().map(T::to_f64).collect();
        (wide(y), wide(state))
    }
}

/// Seeded values as `T`, between `least` and `largest`.
fn between<T: Real>(seeded: &mut Seeded, n: usize, least: f64, largest: f64) -> Vec<T> {
    let unit = seeded.values(n).into_iter().map(|v| 0.5 * (v + 1.0));
    unit.map(|v| T::from_f32((least + v * (largest - least)) as f32)).collect()
}

/// Every recurrent op over `rows` rows. Per step and head the logarithm of a decay is from `slow` to `fast` times a step
/// size of about `size`.
fn all<T: Real>(seed: u64, rows: usize, [slow, fast]: [f64; 2], size: f64) -> Vec<Recurrence<T>> {
    let mut s = Seeded(seed);
    let (n_heads, head_dim, n_groups, d_state) = (4, 2, 2, 6);
    let mut plain = |n: usize| between::<T>(&mut s, n, -1.0, 1.0);
    let conv = {
        let (weight, bias) = (plain(3 * 4), plain(3));
        let run: Run<T> = Box::new(move |v, state, _| causal_conv(v[0], &weight, Some(&bias), true, state, 3, 4));
        Recurrence { name: "conv", operands: vec![(plain(rows * 3), 3)], state: plain(9), run }
    };
    let (d, dt_bias) = (plain(n_heads), plain(n_heads));
    let xbc = |pair: usize| n_heads * head_dim + 2 * pair * n_groups * d_state;
    let (xbc1, xbc2) = (plain(rows * xbc(1)), plain(rows * xbc(2)));
    let [state1, state2] = [1, 2].map(|pair| plain(n_heads * head_dim * d_state * pair));
    let [scan_x, scan_b, scan_c] = [4, 3, 3].map(|width| (plain(rows * width), width));
    let scan_state = plain(4 * 3);
    let rank = 2;
    let bias = [0; 2].map(|_| plain(n_heads * rank * d_state));
    let mimo_x = plain(n_heads * rank * head_dim);
    let shape3 = Mamba3Shape {
        n_heads,
        head_dim,
        n_groups,
        d_state,
        rank,
        n_angles: 2,
        pairing: Pairing::Halves,
        a_activation: DecayActivation::Softplus,
        a_floor: 1e-4,
    };
    let x3 = plain(rows * n_heads * head_dim);
    let [b3, c3] = [0; 2].map(|_| plain(rows * rank * n_groups * d_state));
    let [trap, angle] = [n_heads, 2].map(|width| (plain(rows * width), width));
    let last3 = [d_state * head_dim, rank * d_state, head_dim].map(|each| plain(n_heads * each));
    let delta_shape = DeltaShape { n_k_heads: 2, n_v_heads: n_heads, k_dim: 3, v_dim: 2 };
    let (qkv, beta) = (plain(rows * 20), plain(rows * n_heads));
    let delta_state = plain(n_heads * 6);

    let mut steps = |width: usize| (between::<T>(&mut s, rows * width, size - 1.0, size + 1.0), width);
    let (dt1, dt2, dt3, dt4, dt5) = (steps(4), steps(n_heads), steps(n_heads), steps(n_heads), steps(n_heads));
    let mut rates = |n: usize| between::<T>(&mut s, n, -fast, -slow);
    let (a1, a2, a4, mut a5) = (rates(4 * 3), rates(n_heads), rates(n_heads), rates(2 * n_heads));
    // The logarithm of a size and an angle each.
    a5.iter_mut().skip(1).step_by(2).for_each(|phase| *phase = *phase * T::from_f64(0.25));
    // Rates that softplus makes of these are from `slow` to `fast`, more or less.
    let a3 = (between::<T>(&mut s, rows * n_heads, slow.ln().max(-6.0), fast), n_heads);
    let angles = between::<T>(&mut s, n_heads * 2, 0.0, 6.25);

    let (scan_d, d2, d3, d5) = (d.clone(), d.clone(), d.clone(), d);
    let (bias2, bias3, bias4, bias5) = (dt_bias.clone(), dt_bias.clone(), dt_bias.clone(), dt_bias);
    let scan: Run<T> = Box::new(move |v, state, _| {
        selective_scan(v[0], v[1], v[2], v[3], &a1, &scan_d, InputRule::ZeroOrderHold, state)
    });
    let shape2 =
        SsdShape { n_heads, head_dim, n_groups, d_state, dt_min: 0.0, dt_max: f32::INFINITY, scale_input: true };
    let ssd: Run<T> = Box::new(move |v, state, chunk| match chunk {
        None => ssd(v[0], v[1], &a2, &d2, Some(&bias2), &shape2, state),
        Some(chunk) => ssd_chunked(v[0], v[1], &a2, &d2, Some(&bias2), &shape2, state, chunk),
    });
    let shape5 = CssdShape { n_heads, head_dim, n_groups, d_state };
    let cssd: Run<T> = Box::new(move |v, state, chunk| match chunk {
        None => cssd(v[0], v[1], &a5, &d5, &bias5, &shape5, state),
        Some(chunk) => cssd_chunked(v[0], v[1], &a5, &d5, &bias5, &shape5, state, chunk),
    });
    let delta: Run<T> = Box::new(move |v, state, chunk| match chunk {
        None => delta_rule(v[0], v[1], v[2], &a4, &bias4, &delta_shape, state),
        Some(chunk) => delta_rule_chunked(v[0], v[1], v[2], &a4, &bias4, &delta_shape, state, chunk),
    });
    let state3 = [angles, last3.concat()].concat();
    let mamba3: Run<T> = Box::new(move |v, state, chunk| {
        let [b_bias, c_bias] = &bias;
        let params = Mamba3Params { dt_bias: &bias3, b_bias, c_bias, d: &d3, mimo_x: Some(&mimo_x) };
        let (angle, rest) = state.split_at_mut(n_heads * 2);
        let (s, rest) = rest.split_at_mut(n_heads * head_dim * d_state);
        let (k, x) = rest.split_at_mut(n_heads * rank * d_state);
        let state = Mamba3State { angle, s, k, x };
        match chunk {
            None => mamba3(v[0], v[1], v[2], v[3], v[4], v[5], v[6], &params, &shape3, state),
            Some(n) => mamba3_chunked(v[0], v[1], v[2], v[3], v[4], v[5], v[6], &params, &shape3, state, n),
        }
    });
    let bc3 = rank * n_groups * d_state;
    let operands3 = vec![(x3, n_heads * head_dim), (b3, bc3), (c3, bc3), dt3, a3, trap, angle];
    vec![
        conv,
        Recurrence { name: "scan", operands: vec![scan_x, dt1, scan_b, scan_c], state: scan_state, run: scan },
        Recurrence { name: "ssd", operands: vec![(xbc1, xbc(1)), dt2], state: state1, run: ssd },
        Recurrence { name: "mamba3", operands: operands3, state: state3, run: mamba3 },
        Recurrence { name: "cssd", operands: vec![(xbc2, xbc(2)), dt5], state: state2, run: cssd },
        Recurrence { name: "delta", operands: vec![(qkv, 20), (beta, n_heads), dt4], state: delta_state, run: delta },
    ]
}

/// Consecutive pieces of `rows` rows, cut at `cuts`.
fn pieces(rows: usize, cuts: &[usize]) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (rows + 1)).chain([0, rows]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_piece_is_many(seed: u64, rows in 1..24usize, cuts in prop::collection::vec(0..64usize, 0..5), chunk in 1..30usize) {
        for op in all::<f64>(seed, rows, [0.05, 2.0], 0.0) {
            let (y, state) = op.run(&pieces(rows, &[]), None);
            let steps: Vec<_> = (0..rows).map(|row| row..row + 1).collect();
            for cut in [&steps, &pieces(rows, &cuts)] {
                prop_assert_eq!(&op.run(cut, None), &(y.clone(), state.clone()), "{} by {:?}", op.name, cut);
                let (y_chunked, state_chunked) = op.run(cut, Some(chunk));
                near(&y_chunked, &y, 1e-12, op.name);
                near(&state_chunked, &state, 1e-12, op.name);
            }
            let (y_chunked, state_chunked) = op.run(&pieces(rows, &[]), Some(chunk));
            near(&y_chunked, &y, 1e-12, op.name);
            near(&state_chunked, &state, 1e-12, op.name);
        }
    }
}

/// No rows leave the state as it is.
#[test]
fn nothing_changes_nothing() {
    for op in all::<f64>(1, 1, [0.05, 2.0], 0.0) {
        for chunk in [None, Some(4)] {
            assert_eq!(op.run(&pieces(0, &[]), chunk), (vec![], op.state.clone()), "{}", op.name);
        }
    }
}

/// Long sequences in f32, of which some states last and others are gone at once: chunks are as right as steps are.
#[test]
fn strong_decays_in_f32() {
    let rows = 1200;
    for (rates, size) in [([1e-3, 0.02], 0.0), ([0.5, 16.0], 3.0), ([1e-3, 30.0], 2.0)] {
        for (op, exact) in all::<f32>(7, rows, rates, size).iter().zip(all::<f64>(7, rows, rates, size)) {
            let (y, state) = exact.run(&pieces(rows, &[]), None);
            for chunk in [None, Some(16), Some(64), Some(256)] {
                let (got, got_state) = op.run(&pieces(rows, &[]), chunk);
                let what = format!("{} with rates {rates:?} in chunks of {chunk:?}", op.name);
                near(&got, &y, F32_BOUND, &what);
                near(&got_state, &state, F32_BOUND, &format!("state of {what}"));
            }
        }
    }
}

/// Complex duality has no golden file of its own: its sum written out, with powers in polar form.
#[test]
fn complex_duality_written_out() {
    let mut seeded = Seeded(50);
    let shape = CssdShape { n_heads: 3, head_dim: 2, n_groups: 2, d_state: 4 };
    let CssdShape { n_heads, head_dim, n_groups, d_state } = shape;
    let (rows, bc) = (6, 2 * n_groups * d_state);
    let width = n_heads * head_dim + 2 * bc;
    let (xbc, dt) = (seeded.values(rows * width), seeded.values(rows * n_heads));
    let (a_log, d, dt_bias) = (seeded.values(2 * n_heads), seeded.values(n_heads), seeded.values(n_heads));
    let mut wanted = vec![];
    for t in 0..rows {
        for head in 0..n_heads {
            // Three heads over two groups: 0, 0 and 1.
            let group = [0, 0, 1][head];
            let (size, phase) = (a_log[2 * head], a_log[2 * head + 1]);
            let step = |row: usize| softplus(dt[row * n_heads + head] + dt_bias[head]);
            for p in 0..head_dim {
                let x = |row: usize| xbc[row * width + head * head_dim + p];
                let mut y = d[head] * x(t);
                for s in 0..=t {
                    let passed: f64 = (s + 1..=t).map(step).sum();
                    // (e^{Δm} - 1) · e^{-m}, its size and its angle.
                    let (grown, turned) = ((step(s) * size).exp(), step(s) * phase);
                    let (re, im) = (grown * turned.cos() - 1.0, grown * turned.sin());
                    let (factor, angle) = (re.hypot(im) * (-size).exp(), im.atan2(re) - phase);
                    for n in 0..d_state {
                        let pair = |row: usize, from: usize| {
                            let at = row * width + n_heads * head_dim + from + 2 * (group * d_state + n);
                            (xbc[at].hypot(xbc[at + 1]), xbc[at + 1].atan2(xbc[at]))
                        };
                        let ((b, b_angle), (c, c_angle)) = (pair(s, 0), pair(t, bc));
                        let along = b_angle + angle + passed * phase - c_angle;
                        y += b * c * factor * (passed * size).exp() * along.cos() * x(s);
                    }
                }
                wanted.push(y);
            }
        }
    }
    let mut state = vec![0.0; n_heads * head_dim * d_state * 2];
    near(&cssd(&xbc, &dt, &a_log, &d, &dt_bias, &shape, &mut state), &wanted, 1e-12, "cssd");
}
