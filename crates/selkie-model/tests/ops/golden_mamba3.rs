//! Mamba-3 against the golden files.
//!
//! These hold Δ and A·Δ, and angles for each head. What gives those is found by going back, and each head is run by itself.

use selkie_model::{reference::ops::*, rope::Pairing, spec::Activation};

use crate::support::{Gathered, Golden, columns, inverse_softplus, near, put_columns, swap_axes};

const BOUND: f64 = 5e-7;

/// Of the norm before the gates.
const NORM_EPS: f64 = 1e-5;

/// One head of one entry of a batch.
struct Head {
    shape: Mamba3Shape,
    x: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    dt: Vec<f64>,
    a: Vec<f64>,
    trap: Vec<f64>,
    angle: Vec<f64>,
    b_bias: Vec<f64>,
    c_bias: Vec<f64>,
    d: Vec<f64>,
    mimo_x: Option<Vec<f64>>,
    state: Mamba3Values<f64>,
}

/// The `a` of which `activation` makes this rate.
fn inverse_activation(rate: f64, activation: DecayActivation) -> f64 {
    match activation {
        DecayActivation::Softplus => inverse_softplus(rate),
        DecayActivation::HeavyTail if rate < 1.0 => 1.0 - 1.0 / rate,
        DecayActivation::HeavyTail => rate - 1.0,
    }
}

impl Head {
    fn params(&self) -> Mamba3Params<'_, f64> {
        let mimo_x = self.mimo_x.as_deref();
        Mamba3Params { dt_bias: &[0.0], b_bias: &self.b_bias, c_bias: &self.c_bias, d: &self.d, mimo_x }
    }

    /// By steps, or by chunks of some rows.
    fn run(&self, chunk: Option<usize>) -> (Vec<f64>, Mamba3Values<f64>) {
        let mut state = self.state.clone();
        let Self { shape, x, b, c, dt, a, trap, angle, .. } = self;
        let y = match chunk {
            None => mamba3(x, b, c, dt, a, trap, angle, &self.params(), shape, state.lend()),
            Some(chunk) => mamba3_chunked(x, b, c, dt, a, trap, angle, &self.params(), shape, state.lend(), chunk),
        };
        (y, state)
    }

    /// From the gradient of the result alone: the files have none of the states after.
    fn backward(&self, dy: &[f64]) -> Mamba3Gradients<f64> {
        let Self { shape, x, b, c, dt, a, trap, angle, state, .. } = self;
        let none = Mamba3Values::zeros(shape);
        mamba3_backward(x, b, c, dt, a, trap, angle, &self.params(), shape, state, dy, &none)
    }
}

/// One of the two files.
struct File {
    golden: Golden,
    /// Names are in small letters there, and there is one more axis, for the ranks.
    mimo: bool,
}

impl File {
    fn open(mimo: bool) -> Self {
        Self { golden: Golden::open(if mimo { "mamba3_mimo" } else { "mamba3_siso" }), mimo }
    }

    fn name(&self, case: &str, kind: &str, what: &str) -> String {
        format!("{case}.{kind}.{}", self.short(what))
    }

    fn short(&self, what: &str) -> String {
        if self.mimo && what != "D" { what.to_lowercase() } else { what.to_owned() }
    }

    /// Batch, length, heads and their width.
    fn sizes(&self, case: &str) -> [usize; 4] {
        self.golden.shape(&self.name(case, "in", "V")).try_into().expect("four axes")
    }

    fn pairing(&self, case: &str) -> Pairing {
        let rotation = self.golden.parameters(case)["rotation"].as_str().expect("words").to_owned();
        if rotation.starts_with("pairs") { Pairing::Interleaved } else { Pairing::Halves }
    }

    /// One head of one entry.
    fn head(&self, case: &str, entry: usize, head: usize, a_activation: DecayActivation) -> Head {
        let golden = &self.golden;
        let of = |what: &str| golden.entry(&self.name(case, "in", what), entry);
        let own = |what: &str, each: usize| golden.get(&self.name(case, "in", what))[head * each..][..each].to_vec();
        let [_, length, n_heads, head_dim] = self.sizes(case);
        let keys = golden.shape(&self.name(case, "in", "Q"));
        let (rank, n_groups, d_state) =
            (if self.mimo { keys[2] } else { 1 }, keys[keys.len() - 2], keys[keys.len() - 1]);
        let n_angles = golden.shape(&self.name(case, "in", "Angles"))[3];
        let group = head * n_groups / n_heads;
        let bc = |what: &str| every(&of(what), n_groups, group, d_state);
        let scalars = |what: &str| of(what)[head * length..][..length].to_vec();
        let (delta, log_decay) = (scalars("DT"), scalars("ADT"));
        let a = delta.iter().zip(&log_decay).map(|(dt, adt)| inverse_activation(-adt / dt, a_activation)).collect();
        let state = |what: &str, each: usize| {
            let name = format!("{case}.in.{what}_state");
            if golden.has(&name) { golden.entry(&name, entry)[head * each..][..each].to_vec() } else { vec![0.0; each] }
        };
        Head {
            shape: Mamba3Shape {
                n_heads: 1,
                head_dim,
                n_groups: 1,
                d_state,
                rank,
                n_angles,
                pairing: self.pairing(case),
                a_activation,
                a_floor: 1e-4,
            },
            x: every(&of("V"), n_heads, head, head_dim),
            b: bc("K"),
            c: bc("Q"),
            dt: delta.iter().map(|&dt| inverse_softplus(dt)).collect(),
            a,
            trap: scalars("Trap"),
            angle: every(&of("Angles"), n_heads, head, n_angles),
            b_bias: own("K_bias", rank * d_state),
            c_bias: own("Q_bias", rank * d_state),
            d: golden.find(&self.name(case, "in", "D")).map_or(vec![0.0], |d| vec![d[head]]),
            mimo_x: self.mimo.then(|| own("mimo_v", rank * head_dim)),
            state: Mamba3Values {
                angle: state("angle", n_angles),
                s: state("ssm", head_dim * d_state),
                k: state("k", rank * d_state),
                x: state("v", head_dim),
            },
        }
    }

    /// All heads of one entry: the result `[length, heads, rank, head_dim]`, and the states.
    fn run(
        &self,
        case: &str,
        entry: usize,
        activation: DecayActivation,
        chunk: Option<usize>,
    ) -> (Vec<f64>, Vec<Mamba3Values<f64>>) {
        let [_, length, n_heads, _] = self.sizes(case);
        let heads = (0..n_heads).map(|head| self.head(case, entry, head, activation).run(chunk));
        let (y, states): (Vec<_>, Vec<_>) = heads.unzip();
        let width = y[0].len() / length;
        (swap_axes(&y.concat(), n_heads, length, width), states)
    }

    /// Gathers the gradients by the operands of all heads of one entry, from `dy` `[length, heads, rank, head_dim]`.
    fn gather(&self, case: &str, entry: usize, activation: DecayActivation, dy: &[f64], into: &mut Gathered) {
        let [_, length, n_heads, head_dim] = self.sizes(case);
        let zeros = |what: &str| vec![0.0; self.golden.entry(&self.name(case, "in", what), entry).len()];
        let [mut dv, mut dk, mut dq, mut dangles] = ["V", "K", "Q", "Angles"].map(zeros);
        let (mut of_rows, mut of_heads) = ([const { vec![] }; 3], [const { vec![] }; 4]);
        let mut of_states = [const { vec![] }; 4];
        for index in 0..n_heads {
            let head = self.head(case, entry, index, activation);
            let Mamba3Shape { d_state, rank, n_angles, .. } = head.shape;
            let g = head.backward(&every(dy, n_heads, index, rank * head_dim));
            put_columns(&mut dv, n_heads * head_dim, index * head_dim..(index + 1) * head_dim, &g.x);
            put_columns(&mut dangles, n_heads * n_angles, index * n_angles..(index + 1) * n_angles, &g.angle);
            let width = dk.len() / (length * rank);
            let group = index * (width / d_state) / n_heads;
            let own = group * d_state..(group + 1) * d_state;
            for (all, d) in [(&mut dk, &g.b), (&mut dq, &g.c)] {
                let sums = add(&columns(all, width, own.clone()), d, 1.0);
                put_columns(all, width, own.clone(), &sums);
            }
            // From Δ and a that are raw to Δ and A·Δ.
            for t in 0..length {
                let (size, raw) = (softplus(head.dt[t]), head.a[t]);
                let dlog_decay = -g.a[t] / (size * activation.derivative(raw));
                of_rows[0].push(dlog_decay);
                of_rows[1].push(g.dt[t] / softplus_derivative(head.dt[t]) + activation.of(raw) * dlog_decay);
                of_rows[2].push(g.trap[t]);
            }
            let own = [g.b_bias, g.c_bias, g.d, g.mimo_x.unwrap_or_default()];
            of_heads.iter_mut().zip(own).for_each(|(all, d)| all.extend(d));
            let own = [g.state.angle, g.state.s, g.state.k, g.state.x];
            of_states.iter_mut().zip(own).for_each(|(all, d)| all.extend(d));
        }
        let mut push = |what: &str, values: &[f64]| into.push(&self.short(what), values);
        let own = [("V", &dv), ("K", &dk), ("Q", &dq), ("Angles", &dangles)];
        own.iter().for_each(|(what, values)| push(what, values));
        ["ADT", "DT", "Trap"].iter().zip(&of_rows).for_each(|(what, values)| push(what, values));
        let states = ["angle_state", "ssm_state", "k_state", "v_state"];
        states.iter().zip(&of_states).for_each(|(what, values)| push(what, values));
        let shared = ["K_bias", "Q_bias", "D", "mimo_v"];
        shared.iter().zip(&of_heads).for_each(|(what, values)| into.add(&self.short(what), values));
    }
}

/// One head's rows, of `[length, heads, width]`.
fn every(values: &[f64], heads: usize, head: usize, width: usize) -> Vec<f64> {
    values.chunks_exact(width).skip(head).step_by(heads).flatten().copied().collect()
}

const ACTIVATIONS: [DecayActivation; 2] = [DecayActivation::Softplus, DecayActivation::HeavyTail];

/// By steps, and by chunks of so many rows.
const CHUNKS: [Option<usize>; 4] = [None, Some(1), Some(4), Some(64)];

#[test]
fn single_input() {
    let file = File::open(false);
    let golden = &file.golden;
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        for activation in ACTIVATIONS {
            let mut gathered = Gathered::default();
            for entry in 0..file.sizes(&case)[0] {
                let of = |what: &str| golden.entry(&name(what), entry);
                let gate = golden.has(&name("in.Z")).then(|| of("in.Z"));
                for chunk in CHUNKS {
                    let (y, states) = file.run(&case, entry, activation, chunk);
                    type Part = fn(&Mamba3Values<f64>) -> &Vec<f64>;
                    let parts: [(&str, Part); 4] =
                        [("angle", |s| &s.angle), ("ssm", |s| &s.s), ("k", |s| &s.k), ("v", |s| &s.x)];
                    for (what, part) in parts {
                        let got: Vec<f64> = states.iter().flat_map(|s| part(s).clone()).collect();
                        near(&got, &of(&format!("out.{what}_state")), BOUND, &name(what));
                    }
                    let gated = gate.as_ref().map_or(y.clone(), |gate| glu(gate, &y, Activation::Silu));
                    near(&gated, &of("out.y"), BOUND, &case);
                }
                let (y, _) = file.run(&case, entry, activation, None);
                let (dz, dy) = match &gate {
                    Some(gate) => glu_backward(gate, &y, Activation::Silu, &of("grad_out.y")),
                    None => (vec![], of("grad_out.y")),
                };
                gathered.push("Z", &dz);
                file.gather(&case, entry, activation, &dy, &mut gathered);
            }
            gathered.check(golden, &case, BOUND);
        }
    }
}

/// With the gates and the sum over ranks that follow, and in one case a norm before the gates.
#[test]
fn several_inputs() {
    let file = File::open(true);
    let golden = &file.golden;
    let (mut pairings, mut norms) = (vec![], 0);
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, _, n_heads, head_dim] = file.sizes(&case);
        pairings.push(file.pairing(&case));
        let [mimo_z, mimo_o] = ["in.mimo_z", "in.mimo_o"].map(|what| golden.get(&name(what)));
        let rank = mimo_z.len() / (n_heads * head_dim);
        // One weight for all ranks of a head, there.
        let norm = golden.find(&name("in.norm_weight"));
        let norm: Option<Vec<f64>> =
            norm.map(|weight| weight.chunks_exact(head_dim).flat_map(|w| w.repeat(rank)).collect());
        norms += usize::from(norm.is_some());
        for activation in ACTIVATIONS {
            let mut gathered = Gathered::default();
            for entry in 0..batch {
                let of = |what: &str| golden.entry(&name(what), entry);
                let normed = |y: &[f64]| norm.as_ref().map_or(y.to_vec(), |w| rms_norm(y, w, head_dim, NORM_EPS));
                let gate = rank_expand(&of("in.z"), &mimo_z, n_heads, head_dim);
                for chunk in CHUNKS {
                    let (y, states) = file.run(&case, entry, activation, chunk);
                    // [heads, d_state, head_dim] there.
                    let wanted = of("out.ssm_state");
                    let each = wanted.len() / n_heads;
                    for (states, wanted) in states.iter().zip(wanted.chunks_exact(each)) {
                        near(&states.s, &swap_axes(wanted, each / head_dim, head_dim, 1), BOUND, &name("state"));
                    }
                    let gated = glu(&gate, &normed(&y), Activation::Silu);
                    near(&rank_reduce(&gated, &mimo_o, n_heads, head_dim), &of("out.y"), BOUND, &case);
                }

                let (y, _) = file.run(&case, entry, activation, None);
                let gated = glu(&gate, &normed(&y), Activation::Silu);
                let (dgated, do_) = rank_reduce_backward(&gated, &mimo_o, n_heads, head_dim, &of("grad_out.y"));
                gathered.add("mimo_o", &do_);
                let (dgate, mut dy) = glu_backward(&gate, &normed(&y), Activation::Silu, &dgated);
                let (dz, dmimo_z) = rank_expand_backward(&of("in.z"), &mimo_z, n_heads, head_dim, &dgate);
                gathered.push("z", &dz);
                gathered.add("mimo_z", &dmimo_z);
                if let Some(weight) = &norm {
                    let (dx, dweight) = rms_norm_backward(&y, weight, head_dim, NORM_EPS, &dy);
                    let ones = vec![1.0; dweight.len()];
                    gathered.add("norm_weight", &rank_reduce(&dweight, &ones, n_heads, head_dim));
                    dy = dx;
                }
                file.gather(&case, entry, activation, &dy, &mut gathered);
            }
            gathered.check(golden, &case, BOUND);
        }
    }
    assert!(pairings.contains(&Pairing::Halves) && pairings.contains(&Pairing::Interleaved) && norms > 0);
}
