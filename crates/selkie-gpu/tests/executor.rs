//! The suite that every executor runs, on a GPU, or on software that plays one.

use std::{cell::RefCell, sync::OnceLock};

use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, Limits, RunOptions};
use selkie_model::{Batch, Executor, LoadedWeights, ModelSpec, Sequence, State, Want};
use selkie_suite::{Case, DENSE, MBJS, MIXTURES, RECURRENT, run, run_mbjs};

fn open(options: GpuOptions) -> Gpu {
    pollster::block_on(Gpu::open(&GpuOptions { software: true, ..options })).expect("a GPU, or Mesa's lavapipe")
}

/// One device for all tests, so that kernels are made once.
fn gpu() -> Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(GpuOptions::default())).clone()
}

fn executor(gpu: Gpu, spec: &ModelSpec, weights: LoadedWeights, exact: bool) -> GpuExecutor {
    let options = RunOptions { exact, max_positions: 4096, ..RunOptions::default() };
    pollster::block_on(GpuExecutor::new(gpu, spec, weights, &options)).expect("an executor")
}

fn exact(spec: ModelSpec, weights: LoadedWeights) -> Box<dyn Executor> {
    Box::new(executor(gpu(), &spec, weights, true))
}

#[test]
fn dense_fixtures_exact() {
    DENSE.iter().for_each(|name| run(name, &exact));
}

#[test]
fn recurrent_fixtures_exact() {
    RECURRENT.iter().for_each(|name| run(name, &exact));
}

#[test]
fn mixture_fixtures_exact() {
    MIXTURES.iter().for_each(|name| run(name, &exact));
}

#[test]
fn mbjs_fixtures_exact() {
    MBJS.iter().for_each(|name| run_mbjs(name, &exact));
}

/// What every WebGPU device has and no more: no subgroups, no halves, no packed products, small workgroup memory.
#[test]
fn the_portable_floor_is_enough() {
    let floor = open(GpuOptions { floor: true, ..GpuOptions::default() });
    let plain =
        |spec: ModelSpec, weights| -> Box<dyn Executor> { Box::new(executor(floor.clone(), &spec, weights, true)) };
    for name in ["gemma3-text", "granitemoehybrid", "qwen3next", "ssm-mamba3-mimo-normed", "falcon-mamba"] {
        run(name, &plain);
    }
}

/// Matrices, the embedding and the head among them, in many buffers each.
#[test]
fn matrices_are_cut_where_a_device_sees_little_of_a_buffer() {
    let limits = Limits { binding: 16 << 10, ..Limits::FLOOR };
    let small = open(GpuOptions { limits: Some(limits), ..GpuOptions::default() });
    let (spec, weights) = Case::open("llama-gqa").forms[0].load();
    let cut = executor(small.clone(), &spec, weights, true);
    let chunks = cut.engine().chunks();
    assert!(chunks.iter().any(|&n| n > 1), "no matrix was cut: {chunks:?}");
    run("llama-gqa", &|spec, weights| Box::new(executor(small.clone(), &spec, weights, true)));
}

/// Caches too: states of more positions than a buffer holds are saved and restored, forked, and taken back.
#[test]
fn states_are_cut_where_a_device_sees_little_of_a_buffer() {
    let limits = Limits { binding: 16 << 10, ..Limits::FLOOR };
    let small = open(GpuOptions { limits: Some(limits), ..GpuOptions::default() });
    let (spec, weights) = Case::open("llama-gqa").forms[0].load();
    let executor = RefCell::new(executor(small, &spec, weights, true));
    let ids: Vec<u32> = (0..300).map(|i| (37 * i + 40) % 200).collect();
    let feed = |ids: &[u32], state: &mut State| {
        let sequences = [Sequence { rows: 0..ids.len() }];
        let batch = Batch { ids, sequences: &sequences, outputs: &[ids.len() - 1], want: Want::Logits };
        pollster::block_on(executor.borrow_mut().forward(&batch, &mut [state])).expect("logits").values
    };
    let new = |capacity| pollster::block_on(executor.borrow().new_state(capacity)).expect("a state");
    let mut whole = new(301);
    let wanted = feed(&ids, &mut whole);
    let near = |got: &[f32], how: &str| {
        let off = got.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-3, "{how}: off by {off}");
    };
    let mut state = new(301);
    feed(&ids[..270], &mut state);
    let saved = pollster::block_on(state.snapshot()).expect("a snapshot");
    let mut restored = pollster::block_on(executor.borrow().restore(&saved, 301)).expect("a state");
    let mut fork = state.fork();
    near(&feed(&ids[270..], &mut restored), "restored");
    feed(&[1, 2, 3], &mut fork);
    near(&feed(&ids[270..], &mut state), "forked");
    fork.rewind(120).expect("a rewind");
    near(&feed(&ids[120..], &mut fork), "taken back");
}

/// Activations in 8 bits and caches in f16, as they are by default: off by what rounding costs, which a block read wrongly
/// would exceed by far. Of float weights only caches are rounded.
#[test]
fn fixtures_rounded() {
    for name in ["llama-gqa", "qwen3-qknorm", "granitemoe", "mamba2-g1"] {
        for form in &Case::open(name).forms {
            let (spec, weights) = form.load();
            let mut executor = executor(gpu(), &spec, weights, false);
            let wanted = form.expected().seq;
            for piece in [1, wanted.ids.len()] {
                let mut state = pollster::block_on(executor.new_state(wanted.ids.len())).expect("a state");
                let mut got = vec![];
                for ids in wanted.ids.chunks(piece) {
                    let outputs: Vec<usize> = (0..ids.len()).collect();
                    let sequences = [Sequence { rows: 0..ids.len() }];
                    let batch = Batch { ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
                    got.extend(pollster::block_on(executor.forward(&batch, &mut [&mut state])).expect("a pass").values);
                }
                let square =
                    |values: &mut dyn Iterator<Item = f32>| -> f64 { values.map(|v| f64::from(v).powi(2)).sum() };
                let off = square(&mut got.iter().zip(&wanted.logits).map(|(a, b)| a - b));
                let share = (off / square(&mut wanted.logits.iter().copied())).sqrt();
                let bound = if form.name.contains("model-") { 0.06 } else { 0.002 };
                assert!(share <= bound, "{name}/{} in pieces of {piece}: off by {share} of the logits", form.name);
            }
        }
    }
}
