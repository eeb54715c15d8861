//! The suite that every executor runs, on a GPU, or on software that plays one.

use std::sync::OnceLock;

use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions};
use selkie_model::{Executor, LoadedWeights, ModelSpec};

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

#[test]
fn dense_transformers_exactly() {
    for name in selkie_suite::DENSE {
        let started = std::time::Instant::now();
        selkie_suite::run(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
}

/// With activations rounded to 8 bits and caches to f16: near what the reference says.
#[test]
fn dense_transformers_rounded() {
    let rounded = |spec: ModelSpec, weights: LoadedWeights| -> Box<dyn Executor> {
        let options = RunOptions { max_positions: 4096, ..RunOptions::default() };
        Box::new(pollster::block_on(GpuExecutor::new(gpu(), &spec, weights, &options)).expect("an executor"))
    };
    selkie_suite::run("k256-llama", &rounded);
}

/// What needs no op but attention's and mixtures' own.
const MIXTURES: &[&str] = &["mixtral", "granitemoe", "olmoe", "qwen2moe-shared", "qwen3moe", "qwen3moe-sparse", "k256-qwen3moe", "gptoss"];

#[test]
fn mixtures_exactly() {
    for name in MIXTURES {
        let started = std::time::Instant::now();
        selkie_suite::run(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
}
