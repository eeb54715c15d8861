//! Every block format, decoded on the device, against the CPU's decoder.

mod common;

use common::{Gpu, text};
use selkie_formats::{DType, quant::decode};
use selkie_gpu::{
    Defines,
    quant::{Format, grids},
};

#[test]
fn every_type_of_weights_has_a_format() {
    for dtype in DType::all() {
        // An empty row decodes where the type is one of weights at all.
        let weights = decode(dtype, &[], &mut []).is_ok() && dtype != DType::F64;
        assert_eq!(Format::of(dtype).is_some(), weights, "{dtype}");
    }
    assert!(Format::all().all(|format| Format::of(format.dtype()) == Some(format)));
}

#[test]
fn rows_take_little_more_than_in_files() {
    for format in Format::all() {
        let cols = 4096;
        let (file, device) = (format.dtype().row_bytes(cols).unwrap() as f64, 4.0 * format.row_words(cols) as f64);
        assert!((1.0..1.04).contains(&(device / file)), "{}: {device} bytes for {file}", format.name());
        for cols in (1..9).map(|n| n * format.dtype().block_len()) {
            assert_eq!(format.row_words(cols) % 4, 0);
        }
    }
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q6_K] {
        assert_eq!(Some(4 * Format::of(dtype).unwrap().row_words(4096)), dtype.row_bytes(4096));
    }
}

#[test]
fn decoders_are_valid() {
    for format in Format::all() {
        for defines in [format.defines(), format.defines().flag("FAST_HALVES", true)] {
            let text = text("quant/decode.wgsl", &defines);
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{defines}: {}", e.emit_to_string(&text)));
            naga::valid::Validator::new(
                naga::valid::ValidationFlags::all(),
                naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32,
            )
            .validate(&module)
            .unwrap_or_else(|e| panic!("{defines}: {}", e.emit_to_string(&text)));
            let has = |name: &str| module.functions.iter().any(|(_, f)| f.name.as_deref() == Some(name));
            assert_eq!((has("quad"), has("group")), (format.is_float(), !format.is_float()), "{defines}");
        }
    }
}

/// Bytes, the same each time.
fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Blocks of a file, all decoded on the device: values of `rows` rows.
fn decoded(gpu: &Gpu, format: Format, defines: &Defines, blocks: &[u8], cols: usize) -> Vec<f32> {
    let row_bytes = format.dtype().row_bytes(cols).unwrap();
    let rows = blocks.len() / row_bytes;
    let row_words = format.row_words(cols);
    let mut words = vec![u32::MAX; rows * row_words];
    for (file, out) in blocks.chunks_exact(row_bytes).zip(words.chunks_exact_mut(row_words)) {
        format.repack_row(file, cols, out);
    }
    let step = if format.is_float() { 4 } else { 32 };
    let workgroups = (rows * cols.div_ceil(step)).div_ceil(64);
    let grids = grids();
    let mut inputs: Vec<(u32, &[u32])> = vec![(0, &words), (1, &words)];
    if format.needs_grids() {
        inputs.push((4, &grids));
    }
    let sizes = [rows as u32, cols as u32, row_words as u32, 0];
    let text = text("quant/decode.wgsl", defines);
    let out = gpu.run(&text, &inputs, (2, rows * cols), (3, &sizes), workgroups as u32);
    out.into_iter().map(f32::from_bits).collect()
}

/// Whether a device may give `got` where the exact value is `want`: the very value, or zero for a subnormal f32, which
/// devices need not know. The sign of zero is not looked at.
fn agrees(got: f32, want: f32) -> bool {
    got == want || (want.abs() < f32::MIN_POSITIVE && got == 0.0)
}

/// Holds what the device makes of blocks to what the CPU makes of them; says how many values that were.
fn check(gpu: &Gpu, format: Format, blocks: &[u8], cols: usize) -> usize {
    let dtype = format.dtype();
    let got = decoded(gpu, format, &format.defines(), blocks, cols);
    let mut want = vec![0.0; got.len()];
    decode(dtype, blocks, &mut want).unwrap();
    let mut checked = 0;
    for (at, (&got, &want)) in got.iter().zip(&want).enumerate() {
        // Kernels do without infinities and what comes of them.
        if want.is_finite() {
            assert!(agrees(got, want), "{dtype}: row {}, value {}: {got:e} for {want:e}", at / cols, at % cols);
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_block_decodes_to_the_same_values() {
    let gpu = Gpu::open();
    for format in Format::all() {
        let dtype = format.dtype();
        // An odd number of blocks in a row, so that planes end within a word, and enough rows for all bytes in all
        // places.
        let cols = if format.is_float() { 77 } else { 3 * dtype.block_len() };
        let row_bytes = dtype.row_bytes(cols).unwrap();
        let rows = 400;
        let checked = check(&gpu, format, &noise(rows * row_bytes, dtype as u64), cols);
        assert!(checked * 10 > rows * cols * 9, "{dtype}: only {checked} values of {}", rows * cols);
        // All fields at their smallest, at their largest, and the same everywhere; scales of all sizes.
        let flat: Vec<u8> = (0..=255).flat_map(|byte| std::iter::repeat_n(byte, row_bytes)).collect();
        check(&gpu, format, &flat, cols);
    }
}

/// All half-precision numbers, in order.
fn all_halves() -> Vec<u8> {
    (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn every_half_is_read() {
    let gpu = Gpu::open();
    let f16 = Format::of(DType::F16).unwrap();
    assert_eq!(check(&gpu, f16, &all_halves(), 256), 2 * 31 * 1024);
    assert!(check(&gpu, Format::of(DType::BF16).unwrap(), &all_halves(), 256) > 65_000);

    // The device's own way may take subnormal ones for zero.
    let got = decoded(&gpu, f16, &f16.defines().flag("FAST_HALVES", true), &all_halves(), 256);
    let mut want = vec![0.0; got.len()];
    decode(DType::F16, &all_halves(), &mut want).unwrap();
    for (&got, &want) in got.iter().zip(&want).filter(|(_, want)| want.is_finite()) {
        assert!(got == want || (want.abs() < 2f32.powi(-14) && got == 0.0), "{got:e} for {want:e}");
    }
}
