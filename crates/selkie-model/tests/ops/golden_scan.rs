//! The short convolution and Mamba-1's scan against the golden files.

use std::ops::Range;

use selkie_model::{reference::ops::*, spec::Activation};

use crate::support::{Gathered, Golden, columns, inverse_softplus, near, put_columns, rows_of, swap_axes};

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
        let mut gathered = Gathered::default();
        for entry in 0..batch {
            // Channels first there, rows first here.
            let rows = |what: &str| {
                let values = golden.entry(&name(what), entry);
                swap_axes(&values, channels, values.len() / channels, 1)
            };
            let window_or_zeros = |what: &str| match golden.has(&name(what)) {
                true => rows(what),
                false => vec![0.0; (taps - 1) * channels],
            };
            let (x, dy) = (rows("in.x"), rows("grad_out.y"));
            let (mut y, mut dx) = (vec![], vec![]);
            for range in sequences(&golden, &case, length) {
                let (x, dy) = (rows_of(&x, channels, &range), rows_of(&dy, channels, &range));
                let before = window_or_zeros("in.initial_state");
                let mut window = before.clone();
                y.extend(causal_conv(x, &weight, bias.as_deref(), silu, &mut window, channels, taps));
                if golden.has(&name("out.last_state")) {
                    near(&window, &rows("out.last_state"), BOUND, &name("window"));
                }
                let dwindow = window_or_zeros("grad_out.last_state");
                let bias = bias.as_deref();
                let g = causal_conv_backward(x, &weight, bias, silu, &before, channels, taps, dy, &dwindow);
                dx.extend(g.x);
                gathered.add("weight", &g.weight);
                gathered.add("bias", &g.bias);
                gathered.push("initial_state", &swap_axes(&g.window, taps - 1, channels, 1));
            }
            near(&y, &rows("out.y"), BOUND, &case);
            gathered.push("x", &swap_axes(&dx, length, channels, 1));
        }
        gathered.check(&golden, &case, BOUND);
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
    /// Of channels `own` of `[rows, channels]`, with B and C from columns `bc` of theirs.
    fn part(&self, own: Range<usize>, bc: Range<usize>) -> Self {
        let (channels, d_state) = (self.d.len(), bc.len());
        let width = self.b.len() * channels / self.x.len();
        Self {
            x: columns(&self.x, channels, own.clone()),
            dt: columns(&self.dt, channels, own.clone()),
            b: columns(&self.b, width, bc.clone()),
            c: columns(&self.c, width, bc),
            a: self.a[own.start * d_state..own.end * d_state].to_vec(),
            d: self.d[own].to_vec(),
        }
    }

    fn rows(&self, rows: &Range<usize>) -> Self {
        let (channels, d_state) = (self.d.len(), self.a.len() / self.d.len());
        Self {
            x: rows_of(&self.x, channels, rows).to_vec(),
            dt: rows_of(&self.dt, channels, rows).to_vec(),
            b: rows_of(&self.b, d_state, rows).to_vec(),
            c: rows_of(&self.c, d_state, rows).to_vec(),
            a: self.a.clone(),
            d: self.d.clone(),
        }
    }

    fn run(&self, state: &mut [f64]) -> Vec<f64> {
        let Self { x, dt, b, c, a, d } = self;
        selective_scan(x, dt, b, c, a, d, InputRule::Euler, state)
    }

    fn backward(&self, state: &[f64], dy: &[f64], dstate: &[f64]) -> ScanGradients<f64> {
        let Self { x, dt, b, c, a, d } = self;
        selective_scan_backward(x, dt, b, c, a, d, InputRule::Euler, state, dy, dstate)
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
        let packed = golden.has(&name("out.last_states"));
        let mut gathered = Gathered::default();
        for entry in 0..batch {
            let rows = |what: &str, width: usize| swap_axes(&golden.entry(&name(what), entry), width, length, 1);
            let mut dt = rows("in.delta", channels);
            if let Some(bias) = golden.find(&name("in.delta_bias")) {
                dt = dt.chunks_exact(channels).flat_map(|dt| add(dt, &bias, 1.0)).collect();
            }
            if !softplus {
                dt.iter_mut().for_each(|dt| *dt = inverse_softplus(*dt));
            }
            let whole = Scan {
                x: rows("in.u", channels),
                dt,
                b: rows("in.B", groups * d_state),
                c: rows("in.C", groups * d_state),
                a: golden.get(&name("in.A")),
                d: golden.find(&name("in.D")).unwrap_or_else(|| vec![0.0; channels]),
            };
            let gate = golden.has(&name("in.z")).then(|| rows("in.z", channels));
            // Each group's sequences: their rows, operands, state before, and states after with their gradient.
            let mut parts = vec![];
            let mut y = vec![0.0; length * channels];
            for group in 0..groups {
                let (own, bc) = (group * each..(group + 1) * each, group * d_state..(group + 1) * d_state);
                let scan = whole.part(own.clone(), bc);
                let mut made = vec![];
                for (i, range) in sequences(&golden, &case, length).into_iter().enumerate() {
                    let states = |what: &str| {
                        let all = match packed {
                            true => golden.entry(&name(&format!("{what}s")), i),
                            false => golden.entry(&name(what), entry),
                        };
                        rows_of(&all, d_state, &own).to_vec()
                    };
                    let begin = golden.has(&name("in.initial_state"));
                    let before = if begin { states("in.initial_state") } else { vec![0.0; each * d_state] };
                    let (scan, mut state) = (scan.rows(&range), before.clone());
                    made.extend(scan.run(&mut state));
                    near(&state, &states("out.last_state"), BOUND, &name("state"));
                    parts.push((own.clone(), range, scan, before, states("grad_out.last_state")));
                }
                put_columns(&mut y, channels, own, &made);
            }
            let mut dy = rows("grad_out.y", channels);
            let mut dz = vec![];
            let mut out = y.clone();
            if let Some(gate) = &gate {
                out = glu(gate, &y, Activation::Silu);
                (dz, dy) = glu_backward(gate, &y, Activation::Silu, &dy);
            }
            near(&out, &rows("out.y", channels), BOUND, &case);

            let (mut dx, mut ddt) = (vec![0.0; length * channels], vec![0.0; length * channels]);
            let [mut db, mut dc] = [0; 2].map(|_| vec![0.0; length * groups * d_state]);
            let (mut da, mut dd) = (vec![0.0; channels * d_state], vec![0.0; channels]);
            for (own, range, scan, before, dstate) in &parts {
                let dy = columns(rows_of(&dy, channels, range), channels, own.clone());
                let g = scan.backward(before, &dy, dstate);
                let wide = range.start * channels..range.end * channels;
                put_columns(&mut dx[wide.clone()], channels, own.clone(), &g.x);
                put_columns(&mut ddt[wide], channels, own.clone(), &g.dt);
                let group = own.start / each;
                let (bc, width) = (group * d_state..(group + 1) * d_state, groups * d_state);
                let narrow = range.start * width..range.end * width;
                put_columns(&mut db[narrow.clone()], width, bc.clone(), &g.b);
                put_columns(&mut dc[narrow], width, bc, &g.c);
                da[own.start * d_state..own.end * d_state].iter_mut().zip(&g.a).for_each(|(sum, v)| *sum += v);
                dd[own.clone()].iter_mut().zip(&g.d).for_each(|(sum, v)| *sum += v);
                gathered.push("initial_state", &g.state);
            }
            if !softplus {
                ddt.iter_mut().zip(&whole.dt).for_each(|(d, &raw)| *d /= softplus_derivative(raw));
            }
            let back = |values: &[f64]| swap_axes(values, length, values.len() / length, 1);
            for (what, values) in [("u", &dx), ("delta", &ddt), ("B", &db), ("C", &dc), ("z", &dz)] {
                gathered.push(what, &back(values));
            }
            ddt.chunks_exact(channels).for_each(|d| gathered.add("delta_bias", d));
            gathered.add("A", &da);
            gathered.add("D", &dd);
        }
        gathered.check(&golden, &case, BOUND);
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
                y.extend(scan.run(&mut after[states]));
            }
            near(&glu(&z, &y, Activation::Silu), &golden.entry(&name("out.y"), entry), BOUND, &case);
            near(&after, &golden.entry(&name("out.state"), entry), BOUND, &name("state"));
        }
    }
}
