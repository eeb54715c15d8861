//! Mamba-3 against the golden files.
//!
//! These hold Δ and A·Δ, and angles for each head. What gives those is found by going back, and each head is run by itself.

use selkie_model::{reference::ops::*, rope::Pairing, spec::Activation};

use crate::support::{Golden, inverse_softplus, near, swap_axes};

const BOUND: f64 = 5e-7;

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
    state: States,
}

/// Angles, s, k and x.
#[derive(Clone)]
struct States([Vec<f64>; 4]);

impl States {
    fn lend(&mut self) -> Mamba3State<'_, f64> {
        let [angle, s, k, x] = &mut self.0;
        Mamba3State { angle, s, k, x }
    }
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
    fn run(&self, chunk: Option<usize>) -> (Vec<f64>, States) {
        let mut state = self.state.clone();
        let Self { shape, x, b, c, dt, a, trap, angle, .. } = self;
        let y = match chunk {
            None => mamba3(x, b, c, dt, a, trap, angle, &self.params(), shape, state.lend()),
            Some(chunk) => mamba3_chunked(x, b, c, dt, a, trap, angle, &self.params(), shape, state.lend(), chunk),
        };
        (y, state)
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
        let small = self.mimo && what != "D";
        format!("{case}.{kind}.{}", if small { what.to_lowercase() } else { what.to_owned() })
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
            state: States([
                state("angle", n_angles),
                state("ssm", head_dim * d_state),
                state("k", rank * d_state),
                state("v", head_dim),
            ]),
        }
    }

    /// All heads of one entry: the result `[length, heads, rank, head_dim]`, and the states.
    fn run(
        &self,
        case: &str,
        entry: usize,
        activation: DecayActivation,
        chunk: Option<usize>,
    ) -> (Vec<f64>, Vec<States>) {
        let [_, length, n_heads, _] = self.sizes(case);
        let heads = (0..n_heads).map(|head| self.head(case, entry, head, activation).run(chunk));
        let (y, states): (Vec<_>, Vec<_>) = heads.unzip();
        let width = y[0].len() / length;
        (swap_axes(&y.concat(), n_heads, length, width), states)
    }
}

/// One head's rows, of `[length, heads, width]`.
fn every(values: &[f64], heads: usize, head: usize, width: usize) -> Vec<f64> {
    values.chunks_exact(width).skip(head).step_by(heads).flatten().copied().collect()
}

/// Each way to raise a raw decay, by steps and by chunks.
fn ways() -> impl Iterator<Item = (DecayActivation, Option<usize>)> {
    let activations = [DecayActivation::Softplus, DecayActivation::HeavyTail];
    activations.into_iter().flat_map(|a| [None, Some(1), Some(4), Some(64)].map(|chunk| (a, chunk)))
}

#[test]
fn single_input() {
    let file = File::open(false);
    let golden = &file.golden;
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        for (activation, chunk) in ways() {
            for entry in 0..file.sizes(&case)[0] {
                let (mut y, states) = file.run(&case, entry, activation, chunk);
                for (i, what) in ["angle", "ssm", "k", "v"].iter().enumerate() {
                    let got: Vec<f64> = states.iter().flat_map(|s| s.0[i].clone()).collect();
                    near(&got, &golden.entry(&name(&format!("out.{what}_state")), entry), BOUND, &name(what));
                }
                if golden.has(&name("in.Z")) {
                    y = glu(&golden.entry(&name("in.Z"), entry), &y, Activation::Silu);
                }
                near(&y, &golden.entry(&name("out.y"), entry), BOUND, &case);
            }
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
        for (activation, chunk) in ways() {
            for entry in 0..batch {
                let (mut y, states) = file.run(&case, entry, activation, chunk);
                // [heads, d_state, head_dim] there.
                let wanted = golden.entry(&name("out.ssm_state"), entry);
                let each = wanted.len() / n_heads;
                for (states, wanted) in states.iter().zip(wanted.chunks_exact(each)) {
                    near(&states.0[1], &swap_axes(wanted, each / head_dim, head_dim, 1), BOUND, &name("state"));
                }
                if golden.has(&name("in.norm_weight")) {
                    let weight = golden.get(&name("in.norm_weight"));
                    let rank = y.len() / golden.entry(&name("in.v"), entry).len();
                    let weight: Vec<f64> = weight.chunks_exact(head_dim).flat_map(|w| w.repeat(rank)).collect();
                    y = rms_norm(&y, &weight, head_dim, 1e-5);
                    norms += 1;
                }
                let z = rank_expand(
                    &golden.entry(&name("in.z"), entry),
                    &golden.get(&name("in.mimo_z")),
                    n_heads,
                    head_dim,
                );
                let y = glu(&z, &y, Activation::Silu);
                let y = rank_reduce(&y, &golden.get(&name("in.mimo_o")), n_heads, head_dim);
                near(&y, &golden.entry(&name("out.y"), entry), BOUND, &case);
            }
        }
    }
    assert!(pairings.contains(&Pairing::Halves) && pairings.contains(&Pairing::Interleaved) && norms > 0);
}
