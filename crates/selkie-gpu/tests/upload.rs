//! How much of the host's memory it takes to put weights on the device. A test of its own, since others would be counted in.
#![cfg(target_os = "linux")]

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use selkie_formats::{DType, Tensor, TensorInfo};
use selkie_gpu::{
    Gpu, GpuOptions,
    weights::{MatrixKey, Needed, Piece},
};
use selkie_model::{
    LoadedWeight, LoadedWeights, Watch, WeightSource, Weights,
    weights::{Part, Transform, Weight},
};

const ROWS: usize = 40_000;
const COLS: usize = 4096;

/// Bytes of this process that are no file's.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    };
    1024 * (field("RssAnon:") + field("RssShmem:"))
}

#[test]
fn weights_pass_through_little_memory() {
    let options = GpuOptions { software: true, ..GpuOptions::default() };
    let gpu = pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe");
    // 174 MB, cut in chunks of 128 MiB at most.
    let len = ROWS * DType::Q8_0.row_bytes(COLS).expect("whole blocks");
    let bytes: Vec<u8> = (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    let shape = vec![ROWS, COLS];
    let info = TensorInfo {
        name: "large".into(),
        dtype: DType::Q8_0,
        shape: shape.clone(),
        source: 0,
        range: 0..bytes.len() as u64,
    };
    let tensor = Tensor { dtype: DType::Q8_0, shape: shape.clone(), bytes: bytes.into() };
    let mut weights = Weights::default();
    let part = Part { tensor: info, rows: 0..ROWS, row_len: COLS };
    let id = weights.push(Weight {
        name: "large".into(),
        shape: shape.clone(),
        parts: vec![part],
        transform: Transform::None,
    });
    let loaded: LoadedWeights =
        [LoadedWeight { name: "large".into(), shape, parts: vec![tensor] }].into_iter().collect();
    let (mut spec, _) = selkie_suite::Case::open("llama-gqa").forms[0].load();
    spec.weights = weights;
    let source = WeightSource::Loaded(loaded);

    let mut needed = Needed::new(&spec, Some(&source), gpu.limits());
    let piece = Piece { weight: id, first: 0, rows: ROWS, padding: 0 };
    needed.matrix(MatrixKey { pieces: vec![piece], in_turns: false }, DType::Q8_0, 1).expect("a matrix");
    let before = memory();
    let done = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(memory());
                thread::sleep(Duration::from_micros(300));
            }
            most
        });
        let resident = pollster::block_on(needed.upload(&gpu, &source, &Watch::default())).expect("an upload");
        done.store(true, Ordering::Relaxed);
        assert_eq!(resident.matrices[0].len(), 2);
        watch.join().expect("a number")
    });
    let device = if gpu.is_software() { len as u64 } else { 0 };
    let taken = most.saturating_sub(before).saturating_sub(device);
    println!("{} MB beside the weights", taken / 1_000_000);
    assert!(taken < 64_000_000, "{} MB were taken beside the weights", taken / 1_000_000);
}
