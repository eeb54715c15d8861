//! The short convolution and Mamba-1's scan against the golden files.

use std::ops::Range;

use selkie_model::{reference::ops::*, spec::Activation};

use crate::support::{Golden, columns, inverse_softplus, near, put_columns, swap_axes};

const BOUND: f64 = 3e-7;

/// The sequences of a packed row, or the whole row.
pub fn sequences(golden: &Golden, case: &str, length: usize) -> Vec<Range<usize>> {
    let name = format!("{case}.in.seq_idx");
    let packed = golden.has(&name);
    let ids = if packed { golden.ints(&name) } else { vec![0; length] };
    let starts: Vec<usize> = (0..length).filter(|&i| i == 0 || ids[i] != ids[i - 1]).collect();
    assert_eq!(starts.len() > 1, packed, "{case}: one sequence is not packed");
    starts.iter().zip(starts[1..].iter().chain([&length])).map(|(&start, &end)| start..end).collect()
}

#[test]
fn causal_convolution() {
    let golden = Golden::open("causal_conv1d");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, channels, length]: [usize; 3] = golden.shape(&name("in.x")).try_into().expect("three axes");
        let (weight, bias) = (golden.get(&name("in.weight")), golden.find(&name("in.bias")));
        let taps = weight.len() / channels;
        let silu = golden.parameters(&case)["silu"].as_bool().expect("silu");
        for entry in 0..batch {
            let rows = |what: &str| {
                let values = golden.entry(&name(what), entry);
                swap_axes(&values, channels, values.len() / channels, 1)
            };
            let x = rows("in.x");
            let mut y = vec![];
            let mut window = vec![];
            for rows in sequences(&golden, &case, length) {
                window = vec![0.0; (taps - 1) * channels];
                if golden.has(&name("in.initial_state")) {
                    let state = golden.entry(&name("in.initial_state"), entry);
                    window = swap_axes(&state, channels, taps - 1, 1);
                }
                let x = &x[rows.start * channels..rows.end * channels];
                y.extend(causal_conv(x, &weight, bias.as_deref(), silu, &mut window, channels, taps));
            }
            near(&y, &rows("out.y"), BOUND, &case);
            if golden.has(&name("out.last_state")) {
                near(&window, &rows("out.last_state"), BOUND, &name("window"));
            }
        }
    }
}

/// The operands of one scan, rows first.
struct Scan {
    x: Vec<f64>,
    dt: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    a: Vec<f64>,
    d: Vec<f64>,
}

impl Scan {
    fn run(&self, rows: Range<usize>, state: &mut [f64]) -> Vec<f64> {
        let channels = self.d.len();
        let d_state = self.a.len() / channels;
        let wide = rows.start * channels..rows.end * channels;
        let narrow = rows.start * d_state..rows.end * d_state;
        let (b, c) = (&self.b[narrow.clone()], &self.c[narrow]);
        selective_scan(&self.x[wide.clone()], &self.dt[wide], b, c, &self.a, &self.d, InputRule::Euler, state)
    }
}

#[test]
fn selective_scans() {
    let golden = Golden::open("selective_scan");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, channels, length]: [usize; 3] = golden.shape(&name("in.u")).try_into().expect("three axes");
        let d_state = golden.shape(&name("in.A"))[1];
        let softplus = golden.parameters(&case)["delta_softplus"].as_bool().expect("a switch");
        // Channels of one group see a B and C of their own: they are scans of their own.
        let groups = golden.parameters(&case)["groups"].as_u64().unwrap_or(1) as usize;
        let each = channels / groups;
        for entry in 0..batch {
            let rows = |what: &str, width: usize| swap_axes(&golden.entry(&name(what), entry), width, length, 1);
            let mut y = vec![0.0; length * channels];
            let mut dt = rows("in.delta", channels);
            if let Some(bias) = golden.find(&name("in.delta_bias")) {
                dt = dt.chunks_exact(channels).flat_map(|dt| add(dt, &bias, 1.0)).collect();
            }
            if !softplus {
                dt.iter_mut().for_each(|dt| *dt = inverse_softplus(*dt));
            }
            let a = golden.get(&name("in.A"));
            let d = golden.find(&name("in.D")).unwrap_or_else(|| vec![0.0; channels]);
            let [x, b, c] = [("in.u", channels), ("in.B", groups * d_state), ("in.C", groups * d_state)]
                .map(|(what, width)| rows(what, width));
            for group in 0..groups {
                let (own, bc) = (group * each..(group + 1) * each, group * d_state..(group + 1) * d_state);
                let scan = Scan {
                    x: columns(&x, channels, own.clone()),
                    dt: columns(&dt, channels, own.clone()),
                    b: columns(&b, groups * d_state, bc.clone()),
                    c: columns(&c, groups * d_state, bc.clone()),
                    a: a[own.start * d_state..own.end * d_state].to_vec(),
                    d: d[own.clone()].to_vec(),
                };
                let mut made = vec![];
                for (i, rows) in sequences(&golden, &case, length).into_iter().enumerate() {
                    let states = |what: &str, entry: usize| {
                        golden.entry(&name(what), entry)[own.start * d_state..own.end * d_state].to_vec()
                    };
                    let mut state = vec![0.0; each * d_state];
                    if golden.has(&name("in.initial_state")) {
                        state = states("in.initial_state", entry);
                    }
                    made.extend(scan.run(rows, &mut state));
                    let packed = golden.has(&name("out.last_states"));
                    let last = if packed { states("out.last_states", i) } else { states("out.last_state", entry) };
                    near(&state, &last, BOUND, &name("state"));
                }
                put_columns(&mut y, channels, own, &made);
            }
            if golden.has(&name("in.z")) {
                y = glu(&rows("in.z", channels), &y, Activation::Silu);
            }
            near(&y, &rows("out.y", channels), BOUND, &case);
        }
    }
}

/// One step each: of Mamba-1, and of heads whose every channel has its own decays.
#[test]
fn one_step_of_a_scan() {
    let golden = Golden::open("selective_state_update");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, groups, d_state]: [usize; 3] = golden.shape(&name("in.B")).try_into().expect("three axes");
        let (a, d, bias) = (golden.get(&name("in.A")), golden.get(&name("in.D")), golden.get(&name("in.dt_bias")));
        let each = d.len() / groups;
        for entry in 0..batch {
            let [x, dt, z, b, c, state] =
                ["in.x", "in.dt", "in.z", "in.B", "in.C", "in.state"].map(|what| golden.entry(&name(what), entry));
            let dt = add(&dt, &bias, 1.0);
            let mut after = state.clone();
            let mut y = vec![];
            for group in 0..groups {
                let own = group * each..(group + 1) * each;
                let (bc, states) = (group * d_state..(group + 1) * d_state, own.start * d_state..own.end * d_state);
                let scan = Scan {
                    x: x[own.clone()].to_vec(),
                    dt: dt[own.clone()].to_vec(),
                    b: b[bc.clone()].to_vec(),
                    c: c[bc].to_vec(),
                    a: a[states.clone()].to_vec(),
                    d: d[own].to_vec(),
                };
                y.extend(scan.run(0..1, &mut after[states]));
            }
            near(&glu(&z, &y, Activation::Silu), &golden.entry(&name("out.y"), entry), BOUND, &case);
            near(&after, &golden.entry(&name("out.state"), entry), BOUND, &name("state"));
        }
    }
}
