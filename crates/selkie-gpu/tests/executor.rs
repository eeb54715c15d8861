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

/// Those whose recurrences are Mamba-2's or short convolutions.
#[test]
fn recurrent_models_exactly() {
    let names = [
        "bamba",
        "falcon-h1",
        "falcon-h1-normed",
        "granitehybrid-dense",
        "k256-mamba2",
        "lfm2",
        "mamba2-g1",
        "mamba2-g2",
        "nemotron-h",
        "ssm-mamba2",
    ];
    for name in names {
        let started = std::time::Instant::now();
        selkie_suite::run(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
}

/// Those without Mamba-1.
#[test]
fn hybrids_of_mbjs_exactly() {
    let kinds = ["at-", "m2-", "m3-", "train-at", "train-m2", "train-m3", "hy-jamba"];
    for name in selkie_suite::MBJS.iter().filter(|name| kinds.iter().any(|kind| name.starts_with(kind))) {
        let started = std::time::Instant::now();
        selkie_suite::run_mbjs(name, &exact);
        println!("{name}: {:?}", started.elapsed());
    }
}
