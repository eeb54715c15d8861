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
