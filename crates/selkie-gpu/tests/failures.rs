//! What fails says so: no room, a broken kernel, a lost device, an error that nobody waited for.

use selkie_formats::DType;
use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, Limits, RunOptions, shader_source};
use selkie_model::{Batch, Error, Executor, LoadedWeights, ModelSpec, Result, Sequence, State, Want};

fn open(options: GpuOptions) -> Gpu {
    pollster::block_on(Gpu::open(&GpuOptions { software: true, ..options })).expect("a GPU, or Mesa's lavapipe")
}

fn model() -> (ModelSpec, LoadedWeights) {
    let forms = selkie_suite::Case::open("llama-gqa").forms;
    let quantised = |spec: &ModelSpec| spec.weights.iter().any(|(_, weight)| weight.dtype() == DType::Q8_0);
    forms.iter().map(|form| form.load()).find(|(spec, _)| quantised(spec)).expect("a quantised form")
}

fn load(gpu: &Gpu, options: &RunOptions) -> Result<GpuExecutor> {
    let (spec, weights) = model();
    pollster::block_on(GpuExecutor::new(gpu.clone(), &spec, weights, options))
}

fn small() -> RunOptions {
    RunOptions { max_positions: 64, block_rows: 16, ..RunOptions::default() }
}

fn feed(executor: &mut GpuExecutor, state: &mut State, ids: &[u32]) -> Result<Vec<f32>> {
    let sequences = [Sequence { rows: 0..ids.len() }];
    let batch = Batch { ids, sequences: &sequences, outputs: &[ids.len() - 1], want: Want::Logits };
    pollster::block_on(executor.forward(&batch, &mut [state])).map(|output| output.values)
}

fn state(executor: &GpuExecutor) -> State {
    pollster::block_on(executor.new_state(32)).expect("a state")
}

#[test]
fn what_does_not_fit_is_refused_before_the_load() {
    let gpu = open(GpuOptions { memory: Some(1_000_000), ..GpuOptions::default() });
    let error = load(&gpu, &RunOptions { context: 64, ..small() }).err().expect("no room");
    assert!(matches!(error, Error::OutOfMemory(_)), "{error:?}");
    let text = error.to_string();
    for part in ["the model needs ", " MB (weights ", "a state for 64 positions", ": it has 1 MB", "need less"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(gpu.counts().made(), 0, "something was made all the same");
}

#[test]
fn the_sum_is_what_is_made() {
    let gpu = open(GpuOptions::default());
    let mut executor = load(&gpu, &RunOptions { context: 32, ..small() }).expect("a model");
    let mut state = state(&executor);
    feed(&mut executor, &mut state, &[1, 2, 3]).expect("a pass");
    let memory = executor.engine().memory();
    // Half of what stages is the buffer that weights pass through, which is gone; constants and ids are not in the sum.
    let (sum, made) = (memory.total() - (16 << 20), gpu.counts().bytes());
    assert!(sum <= made && made - sum < 200_000, "{memory} where {made} bytes were made");
    assert!(memory.weights > 0 && memory.state > 0 && memory.values > 0, "{memory}");
}

#[test]
fn a_failed_load_leaves_nothing() {
    let gpu = open(GpuOptions::default());
    let mut executor = load(&gpu, &small()).expect("a model");
    let mut one = state(&executor);
    feed(&mut executor, &mut one, &[1, 2, 3]).expect("a pass");
    drop((one, executor));
    assert_eq!((gpu.counts().buffers(), gpu.counts().bytes()), (0, 0));

    // Weights fit, values do not.
    let tight = open(GpuOptions { limits: Some(Limits { buffer: 30_000, ..Limits::FLOOR }), ..GpuOptions::default() });
    for _ in 0..3 {
        let error = load(&tight, &small()).err().expect("a limit").to_string();
        assert!(error.contains(" needs ") && error.contains(" allows 30000"), "{error}");
        assert!(tight.counts().made() > 0);
        assert_eq!((tight.counts().buffers(), tight.counts().bytes()), (0, 0));
    }
}

#[test]
fn broken_kernels_are_named() {
    let cases = [
        ("kernels/product/token.wgsl", "@compute", "@computer"),
        ("kernels/product/block.wgsl", "fn main(", "fn somewhere_else("),
        ("kernels/attention/token.wgsl", "@group(0) @binding(0) var<uniform> p: Params;", "var<private> p: vec9<u32>;"),
        ("kernels/rope/rope.wgsl", "fn main(", "fn main(missing"),
        ("kernels/embed/embed.wgsl", "@binding(0)", "@binding(99)"),
    ];
    for (file, from, to) in cases {
        let text = shader_source(file).expect(file);
        assert!(text.contains(from), "{file} does not contain {from:?}");
        let broken: &'static str = text.replace(from, to).leak();
        let gpu = open(GpuOptions { replaced: Some((file, broken)), ..GpuOptions::default() });
        let error = load(&gpu, &small()).err().unwrap_or_else(|| panic!("{file} with {to:?} was taken")).to_string();
        assert!(error.contains(file), "{file}: {error}");
        assert_eq!(gpu.counts().buffers(), 0, "{file}");
    }
}

#[test]
fn a_lost_device_is_reported_and_another_takes_its_place() {
    let gpu = open(GpuOptions::default());
    let mut executor = load(&gpu, &small()).expect("a model");
    let mut lost = state(&executor);
    let before = feed(&mut executor, &mut lost, &[1, 2, 3]).expect("a pass");
    gpu.destroy();
    for _ in 0..2 {
        let error = feed(&mut executor, &mut lost, &[4]).expect_err("a pass on no device");
        assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
        assert!(error.to_string().starts_with("the GPU was lost: "), "{error}");
    }
    let error = pollster::block_on(executor.new_state(32)).err().expect("a state on no device");
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
    let error = pollster::block_on(lost.snapshot()).expect_err("a snapshot of nothing");
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
    let error = load(&gpu, &small()).err().expect("a model on no device");
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");

    let mut executor = load(&open(GpuOptions::default()), &small()).expect("a model");
    let mut again = state(&executor);
    assert_eq!(feed(&mut executor, &mut again, &[1, 2, 3]).expect("a pass"), before);
}

#[test]
fn errors_that_nobody_waited_for_fail_the_next_pass() {
    let gpu = open(GpuOptions::default());
    let mut executor = load(&gpu, &small()).expect("a model");
    let mut state = state(&executor);
    let (first, second) = {
        let mut fork = state.fork();
        let first = feed(&mut executor, &mut fork, &[1, 2, 3]).expect("a pass");
        (first, feed(&mut executor, &mut fork, &[4]).expect("a pass"))
    };
    assert_eq!(feed(&mut executor, &mut state, &[1, 2, 3]).expect("a pass"), first);
    // No buffer may be both.
    let _invalid = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: Some("nonsense"),
        size: 16,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE,
        mapped_at_creation: false,
    });
    let error = feed(&mut executor, &mut state, &[4]).expect_err("an error");
    let text = error.to_string();
    assert!(text.starts_with("the GPU reported: ") && text.contains("nonsense"), "{text}");
    assert_eq!(state.positions(), 3);
    assert_eq!(feed(&mut executor, &mut state, &[4]).expect("a pass"), second);
}

/// Sums of a workgroup by subgroups that are wrong, all else being right.
fn wrong_subgroups() -> (&'static str, &'static str) {
    let file = "kernels/reduce.wgsl";
    let text = shader_source(file).expect(file);
    assert!(text.contains("subgroupAdd(value)"), "{text}");
    (file, text.replace("subgroupAdd(value)", "subgroupAdd(0.7 * value)").leak())
}

#[test]
fn a_flavour_that_fails_its_test_gives_way_to_plain_kernels() {
    let right = open(GpuOptions::default());
    let mut executor = load(&right, &small()).expect("a model");
    let mut own = state(&executor);
    let wanted = feed(&mut executor, &mut own, &[1, 2, 3]).expect("a pass");
    assert!(!executor.device().contains("plain kernels"), "{}", executor.device());
    if right.flavours().subgroup.is_none() {
        return;
    }
    let gpu = open(GpuOptions { replaced: Some(wrong_subgroups()), ..GpuOptions::default() });
    let mut executor = load(&gpu, &small()).expect("a model on plain kernels");
    assert!(executor.device().contains("plain kernels"), "{}", executor.device());
    let mut own = state(&executor);
    let got = feed(&mut executor, &mut own, &[1, 2, 3]).expect("a pass");
    let size = wanted.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
    for (got, wanted) in got.iter().zip(&wanted) {
        assert!((got - wanted).abs() < 0.05 * size, "{got} for {wanted}");
    }
}

#[test]
fn kernels_that_compute_something_else_are_refused() {
    let file = "kernels/embed/embed.wgsl";
    let text = shader_source(file).expect(file);
    let line = text.lines().find(|line| line.trim_start().starts_with("out[")).expect("a store");
    let wrong = line.replacen('=', "= 0.5 +", 1);
    let text: &'static str = text.replace(line, &wrong).leak();
    for floor in [false, true] {
        let gpu = open(GpuOptions { replaced: Some((file, text)), floor, ..GpuOptions::default() });
        let error = load(&gpu, &small()).err().expect("a failure").to_string();
        assert!(error.contains("the self-test failed: ") && error.contains(" are off by "), "{error}");
    }
}
