//! What the recurrent ops reach: `cargo bench -p selkie-cpu --bench recurrent [FILTER]`. All layers of a model, each with a
//! state of its own, so that a token's states come from where they come from in a model. Items are tokens.

use std::sync::{Arc, LazyLock};

use divan::{Bencher, counter::ItemsCount};
use selkie_cpu::{
    CausalConv, ConvState, Cssd, CssdState, DeltaRule, DeltaState, Mamba3, Mamba3Inputs, Mamba3Parameters, Mamba3State,
    Pool, ScanState, SelectiveScan, Ssd, SsdState,
};
use selkie_model::{
    reference::ops::{CssdShape, DecayActivation, DeltaShape, InputRule, Mamba3Shape, SsdShape},
    rope::Pairing,
};

const LAYERS: usize = 24;

/// A token, a few, a prompt.
const ROWS: [usize; 4] = [1, 8, 64, 512];

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(Pool::default_threads()));

fn main() {
    println!("{:?}", *POOL);
    divan::main();
}

/// Numbers in -1..1.
fn values(len: usize) -> Vec<f32> {
    let mut x = len as u32 | 1;
    let next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Step sizes before their softplus, such that a state remembers a while.
fn steps(len: usize) -> Vec<f32> {
    values(len).iter().map(|v| v - 4.0).collect()
}

fn run<S>(bencher: Bencher, rows: usize, make: impl Fn() -> S, mut forward: impl FnMut(&mut S)) {
    let mut states: Vec<S> = (0..LAYERS).map(|_| make()).collect();
    bencher.counter(ItemsCount::new(rows)).bench_local(|| states.iter_mut().for_each(&mut forward));
}

/// The convolution of mamba2-130m.
#[divan::bench(args = ROWS, max_time = 2)]
fn conv(bencher: Bencher, rows: usize) {
    const C: usize = 1792;
    let op = Arc::new(CausalConv::new(C, 4, &values(4 * C), Some(&values(C)), true).unwrap());
    let (x, mut out) = (values(rows * C), vec![0.0; rows * C]);
    run(bencher, rows, || ConvState::new(op.clone()), |state| state.forward(&POOL, &x, &mut out).unwrap());
}

/// The scan of mamba-130m.
#[divan::bench(args = ROWS, max_time = 2)]
fn selective_scan(bencher: Bencher, rows: usize) {
    const C: usize = 1536;
    const N: usize = 16;
    let a: Vec<f32> = (0..C * N).map(|i| -((i % N + 1) as f32)).collect();
    let op = Arc::new(SelectiveScan::new(C, N, InputRule::Euler, &a, &values(C)).unwrap());
    let (x, dt, b, c) = (values(rows * C), steps(rows * C), values(rows * N), values(rows * N));
    let mut out = vec![0.0; rows * C];
    let forward = |state: &mut ScanState| state.forward(&POOL, &x, &dt, &b, &c, &mut out).unwrap();
    run(bencher, rows, || ScanState::new(op.clone()), forward);
}

/// The recurrence of mamba2-130m.
#[divan::bench(args = ROWS, max_time = 2)]
fn ssd(bencher: Bencher, rows: usize) {
    let shape = SsdShape {
        n_heads: 24,
        head_dim: 64,
        n_groups: 1,
        d_state: 128,
        dt_min: 0.0,
        dt_max: f32::INFINITY,
        scale_input: true,
    };
    let a: Vec<f32> = (0..24).map(|i| -0.5 * (i + 1) as f32).collect();
    let op = Arc::new(Ssd::new(shape, &a, &values(24), None).unwrap());
    let (xbc, dt, mut out) = (values(rows * 1792), steps(rows * 24), vec![0.0; rows * 1536]);
    run(bencher, rows, || SsdState::new(op.clone()), |state| state.forward(&POOL, &xbc, &dt, &mut out).unwrap());
}

/// Mamba-3 of the same size, with one and with four keys a token.
#[divan::bench(args = ROWS, consts = [1, 4], max_time = 2)]
fn mamba3<const RANK: usize>(bencher: Bencher, rows: usize) {
    let shape = Mamba3Shape {
        n_heads: 24,
        head_dim: 64,
        n_groups: 1,
        d_state: 128,
        rank: RANK,
        n_angles: 32,
        pairing: if RANK == 1 { Pairing::Interleaved } else { Pairing::Halves },
        a_activation: DecayActivation::HeavyTail,
        a_floor: 1e-4,
    };
    let (biases, mimo_x) = (values(24 * RANK * 128), values(24 * RANK * 64));
    let parameters = Mamba3Parameters {
        dt_bias: &[0.0; 24],
        b_bias: &biases,
        c_bias: &biases,
        d: &[1.0; 24],
        mimo_x: (RANK > 1).then_some(&mimo_x),
    };
    let op = Arc::new(Mamba3::new(shape, &parameters).unwrap());
    let (x, b, c) = (values(rows * 1536), values(rows * RANK * 128), values(rows * RANK * 128));
    let (dt, a, trap, angle) = (steps(rows * 24), values(rows * 24), values(rows * 24), values(rows * 32));
    let inputs = Mamba3Inputs { x: &x, b: &b, c: &c, dt: &dt, a: &a, trap: &trap, angle: &angle };
    let mut out = vec![0.0; rows * RANK * 1536];
    let forward = |state: &mut Mamba3State| state.forward(&POOL, &inputs, &mut out).unwrap();
    run(bencher, rows, || Mamba3State::new(op.clone()), forward);
}

/// cssd of half that size: its states are pairs.
#[divan::bench(args = ROWS, max_time = 2)]
fn cssd(bencher: Bencher, rows: usize) {
    let shape = CssdShape { n_heads: 24, head_dim: 64, n_groups: 1, d_state: 32 };
    let a_log: Vec<f32> = (0..48).map(|i| if i % 2 == 0 { -0.1 } else { i as f32 * 0.1 }).collect();
    let op = Arc::new(Cssd::new(shape, &a_log, &[1.0; 24], &[0.0; 24]).unwrap());
    let (xbc, dt, mut out) = (values(rows * 1664), steps(rows * 24), vec![0.0; rows * 1536]);
    run(bencher, rows, || CssdState::new(op.clone()), |state| state.forward(&POOL, &xbc, &dt, &mut out).unwrap());
}

/// The delta rule with heads as those of Qwen3-Next, a quarter as many.
#[divan::bench(args = ROWS, max_time = 2)]
fn delta_rule(bencher: Bencher, rows: usize) {
    let shape = DeltaShape { n_k_heads: 4, n_v_heads: 8, k_dim: 128, v_dim: 128 };
    let op = Arc::new(DeltaRule::new(shape, &[-1.0; 8], &[0.0; 8]).unwrap());
    let (qkv, b, a) = (values(rows * 2048), values(rows * 8), steps(rows * 8));
    let mut out = vec![0.0; rows * 1024];
    let forward = |state: &mut DeltaState| state.forward(&POOL, &qkv, &b, &a, &mut out).unwrap();
    run(bencher, rows, || DeltaState::new(op.clone()), forward);
}
