//! The suite that every executor runs, on a GPU, or on software that plays one.

use std::sync::OnceLock;

use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions};
use selkie_model::{Batch, Executor, LoadedWeights, ModelSpec, Sequence, Want};

/// One device for all tests, so that kernels are made once.
fn gpu() -> Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let open = || {
        let options = GpuOptions { software: true, ..GpuOptions::default() };
        pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
    };
    GPU.get_or_init(open).clone()
}

fn exact(spec: ModelSpec, weights: LoadedWeights) -> Box<dyn Executor> {
    let options = RunOptions { exact: true, max_positions: 4096, ..RunOptions::default() };
    Box::new(pollster::block_on(GpuExecutor::new(gpu(), &spec, weights, &options)).expect("an executor"))
}

fn all(names: &[&str]) {
    for name in names {
        selkie_suite::run(name, &exact);
    }
}

#[test]
fn dense_transformers_exactly() {
    all(selkie_suite::DENSE);
}

#[test]
fn recurrent_models_exactly() {
    all(selkie_suite::RECURRENT);
}

#[test]
fn mixtures_exactly() {
    all(selkie_suite::MIXTURES);
}

#[test]
fn hybrids_of_mbjs_exactly() {
    for name in selkie_suite::MBJS {
        selkie_suite::run_mbjs(name, &exact);
    }
}

/// Activations in 8 bits and caches in f16, as they are by default: off by what rounding costs, which a block read wrongly
/// would exceed by far. Of float weights only caches are rounded.
#[test]
fn dense_transformers_rounded() {
    let rounded = |spec: ModelSpec, weights: LoadedWeights| -> Box<dyn Executor> {
        let options = RunOptions { max_positions: 4096, ..RunOptions::default() };
        Box::new(pollster::block_on(GpuExecutor::new(gpu(), &spec, weights, &options)).expect("an executor"))
    };
    for name in ["llama-gqa", "qwen3-qknorm"] {
        for form in &selkie_suite::Case::open(name).forms {
            let (spec, weights) = form.load();
            let mut executor = rounded(spec, weights);
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
                println!("{name}/{}: {share}", form.name);
                assert!(share <= bound, "{name}/{}: off by {share} of the logits", form.name);
            }
        }
    }
}

/// Mamba-1 and the gated delta rule, among attention too.
#[test]
fn scan_models_exactly() {
    for name in ["mamba", "ssm-mamba1", "falcon-mamba"] {
        let started = std::time::Instant::now();
        selkie_suite::run(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
    for name in selkie_suite::MBJS.iter().filter(|name| name.starts_with("m1-") || **name == "train-m1") {
        let started = std::time::Instant::now();
        selkie_suite::run_mbjs(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
}

