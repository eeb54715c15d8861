//! The decoders, bit for bit, against blocks that ggml made.

mod common;

use common::{fixture, now, source};
use selkie_formats::{Checkpoint, DType, quant};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn assert_bits(dtype: DType, blocks: &[u8], want: &[u8]) {
    let mut out = vec![0.0f32; want.len() / 4];
    quant::decode(dtype, blocks, &mut out).unwrap();
    for (index, (got, want)) in out.iter().zip(want.as_chunks::<4>().0).enumerate() {
        let want = f32::from_le_bytes(*want);
        let equal = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(equal, "{dtype}: value {index} is {got:e}, not {want:e}");
    }
}

#[test]
fn quantised_tensors_decode() {
    let file = source("blocks", fixture("ops/gguf_blocks.safetensors"));
    let checkpoint = now(Checkpoint::open(vec![file])).unwrap();
    let mut types = 0;
    for info in checkpoint.tensors() {
        let Some(name) = info.name.strip_suffix(".blocks") else { continue };
        let dtype = DType::from_name(name).unwrap();
        let blocks = now(checkpoint.read(info)).unwrap();
        let values = now(checkpoint.load(&format!("{name}.values"))).unwrap();
        assert_bits(dtype, &blocks.bytes, &values.bytes);
        types += 1;
    }
    assert_eq!(types, 27);
}

#[test]
fn random_blocks_decode() {
    let cases: serde_json::Value = serde_json::from_slice(&fixture("gguf/dequant/blocks.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let dtype = DType::from_ggml_id(case["type_id"].as_u64().unwrap() as u32).unwrap();
        assert!(dtype.name().eq_ignore_ascii_case(case["type"].as_str().unwrap()));
        let (blocks, values) = (case["hex"].as_str().unwrap(), case["values_f32_hex"].as_str().unwrap());
        assert_bits(dtype, &hex(blocks), &hex(values));
    }
}

const ENCODED: [DType; 11] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
];

fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; dtype.row_bytes(values.len()).unwrap()];
    quant::encode(dtype, values, &mut out).unwrap();
    out
}

fn decode(dtype: DType, blocks: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; blocks.len() / dtype.block_bytes() * dtype.block_len()];
    quant::decode(dtype, blocks, &mut out).unwrap();
    out
}

fn rms(values: &[f32], others: &[f32]) -> f64 {
    assert_eq!(values.len(), others.len());
    let squares = values.iter().zip(others).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

/// Values between -1 and 1, the same each time.
fn noise(len: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    // The product has the heavy middle of weights.
    (0..len).map(|_| next() * next()).collect()
}

#[test]
fn encoding_loses_no_more_than_ggml_does() {
    let file = source("blocks", fixture("ops/gguf_blocks.safetensors"));
    let checkpoint = now(Checkpoint::open(vec![file])).unwrap();
    let load = |name: &str| now(checkpoint.load(name)).unwrap().to_f32().unwrap();
    let original = load("source");
    for dtype in ENCODED {
        let ours = rms(&original, &decode(dtype, &encode(dtype, &original)));
        if dtype == DType::F32 {
            assert_eq!(ours, 0.0);
            continue;
        }
        let theirs = rms(&original, &load(&format!("{}.values", dtype.name().to_uppercase())));
        println!("{dtype}: {ours:.3e} of {theirs:.3e}: {:.4}", ours / theirs);
        assert!(ours <= theirs * 1.05, "{dtype}: {ours:e}, ggml {theirs:e}");
    }
}

#[test]
fn what_was_decoded_encodes_nearly_the_same() {
    for dtype in ENCODED {
        let once = decode(dtype, &encode(dtype, &noise(1024, 7)));
        let twice = decode(dtype, &encode(dtype, &once));
        let loss = rms(&once, &twice) / rms(&once, &vec![0.0; once.len()]);
        println!("{dtype}: {loss:e}");
        assert!(loss < 0.02, "{dtype}: {loss}");
    }
}

#[test]
fn scales_of_any_size_work() {
    for dtype in ENCODED {
        for exponent in [-60, -40, -26, -20, -10, 0, 10, 15] {
            let scale = 2f32.powi(exponent);
            let values: Vec<f32> = noise(512, 3).iter().map(|x| x * scale).collect();
            let error = rms(&values, &decode(dtype, &encode(dtype, &values)));
            // Half precision has steps of 2^-24, of which a block takes as many as its largest integer.
            assert!(error <= f64::from(scale) * 0.05 + 2f64.powi(-18), "{dtype} at 2^{exponent}: {error:e}");
        }
        for flat in [0.0, 1.0, -1.0, 1e-30] {
            let values = vec![flat; 256];
            let error = rms(&values, &decode(dtype, &encode(dtype, &values)));
            assert!(error <= f64::from(flat).abs() * 0.01 + 1e-7, "{dtype} of {flat}: {error:e}");
        }
    }
}

#[test]
fn values_that_no_block_holds_are_named() {
    for dtype in ENCODED {
        let mut out = vec![0; dtype.row_bytes(512).unwrap()];
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = noise(512, 1);
            values[300] = bad;
            let error = quant::encode(dtype, &values, &mut out).unwrap_err();
            assert!(matches!(error, quant::QuantError::NotFinite { index: 300, .. }), "{error}");
        }
        let mut values = noise(512, 1);
        values[300] = -f32::MAX;
        match quant::encode(dtype, &values, &mut out) {
            Ok(()) => assert_eq!(dtype, DType::F32),
            Err(error) => {
                assert!(matches!(error, quant::QuantError::TooLarge { index: 300, .. }), "{error}");
                assert!(error.to_string().contains("value 300"), "{error}");
            }
        }
    }
}

#[test]
fn lengths_must_fit() {
    let length = |result: Result<(), quant::QuantError>| matches!(result, Err(quant::QuantError::Length { .. }));
    assert!(length(quant::decode(DType::Q4_0, &[0; 17], &mut [0.0; 32])));
    assert!(length(quant::decode(DType::Q4_0, &[0; 18], &mut [0.0; 31])));
    assert!(length(quant::decode(DType::Q4_0, &[0; 36], &mut [0.0; 32])));
    assert!(length(quant::encode(DType::Q4_0, &[0.0; 32], &mut [0; 19])));
    assert!(length(quant::encode(DType::Q4_0, &[0.0; 16], &mut [0; 9])));
    assert_eq!(quant::decode(DType::Q4_K, &[], &mut []), Ok(()));
}

#[test]
fn other_types_are_refused() {
    for dtype in DType::all() {
        assert_eq!(quant::can_encode(dtype), ENCODED.contains(&dtype), "{dtype}");
    }
    assert_eq!(quant::decode(DType::I8, &[1], &mut [0.0]), Err(quant::QuantError::NotWeights(DType::I8)));
    assert_eq!(quant::encode(DType::I8, &[1.0], &mut [0]), Err(quant::QuantError::NoEncoder(DType::I8)));
}
