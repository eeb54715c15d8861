//! Files with random damage are refused or read, never fatal; random files come back as they were written.

mod common;

use std::collections::BTreeMap;

use common::{example_metadata, now, read_gguf, source, write_gguf};
use proptest::{collection::vec, prelude::*};
use selkie_formats::{
    Checkpoint, DType, TensorSpec,
    gguf::{Array, Metadata, Value},
    parse_lenient_json, quant,
    safetensors::SafetensorsWriter,
};

fn gguf() -> Vec<u8> {
    let tensors = [
        TensorSpec { name: "a".into(), dtype: DType::F16, shape: vec![3, 5] },
        TensorSpec { name: "b".into(), dtype: DType::Q4_K, shape: vec![2, 256] },
    ];
    write_gguf(3, &example_metadata(), &tensors, |index| index as u8)
}

fn safetensors() -> Vec<u8> {
    let specs = [
        TensorSpec { name: "a".into(), dtype: DType::F32, shape: vec![2, 3] },
        TensorSpec { name: "b".into(), dtype: DType::U8, shape: vec![5] },
    ];
    let notes = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut writer = SafetensorsWriter::new(Vec::new(), &notes, &specs).unwrap();
    writer.write(&[7; 29]).unwrap();
    writer.finish().unwrap()
}

/// What can happen to a file. Places are fractions of its length.
#[derive(Clone, Debug)]
enum Damage {
    Flip(f64, u8),
    Number(f64, u64),
    Truncate(f64),
    Extend(Vec<u8>),
    Move(f64, f64, u8),
    Remove(f64, u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = 0.0..1.0;
    let number = prop_oneof![any::<u64>(), 0u64..40, Just(u64::MAX), Just(1 << 63), Just(1 << 32), Just(1 << 61)];
    prop_oneof![
        4 => (place.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Flip(at, byte)),
        4 => (place.clone(), number).prop_map(|(at, number)| Damage::Number(at, number)),
        1 => place.clone().prop_map(Damage::Truncate),
        1 => vec(any::<u8>(), 1..40).prop_map(Damage::Extend),
        2 => (place.clone(), place.clone(), 1u8..40).prop_map(|(from, to, len)| Damage::Move(from, to, len)),
        1 => (place, 1u8..20).prop_map(|(at, len)| Damage::Remove(at, len)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let place = |at: f64| (at * bytes.len() as f64) as usize;
        match damage {
            Damage::Flip(at, byte) => {
                let at = place(*at);
                bytes.iter_mut().skip(at).take(1).for_each(|old| *old ^= byte);
            }
            Damage::Number(at, number) => {
                let at = place(*at);
                bytes.iter_mut().skip(at).zip(number.to_le_bytes()).for_each(|(old, new)| *old = new);
            }
            Damage::Truncate(at) => bytes.truncate(place(*at)),
            Damage::Extend(more) => bytes.extend(more),
            Damage::Move(from, to, len) => {
                let (from, to) = (place(*from), place(*to));
                let piece: Vec<u8> = bytes.iter().skip(from).take(usize::from(*len)).copied().collect();
                bytes.splice(to..to, piece);
            }
            Damage::Remove(at, len) => {
                let at = place(*at);
                bytes.drain(at..(at + usize::from(*len)).min(bytes.len()));
            }
        }
    }
    bytes
}

/// Opens a file and reads all that it has.
fn exercise(bytes: Vec<u8>) {
    let len = bytes.len();
    match now(Checkpoint::open(vec![source("damaged", bytes)])) {
        Ok(checkpoint) => {
            for info in checkpoint.tensors() {
                let tensor = now(checkpoint.read(info)).unwrap();
                assert!(tensor.bytes.len() <= len);
                let _ = tensor.to_f32();
            }
            let keys = checkpoint.gguf.iter().flat_map(Metadata::iter);
            keys.for_each(|(key, value)| assert!(!format!("{key} {value:?}").is_empty()));
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.starts_with("damaged: "), "{line}");
        }
    }
}

fn number_array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..5).prop_map(Array::U8),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(-1e9f32..1e9, 0..5).prop_map(Array::F32),
        vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        vec(".{0,6}", 0..5).prop_map(|strings| Array::String(strings.iter().collect())),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let array = number_array().prop_recursive(3, 20, 4, |inner| vec(inner, 0..4).prop_map(Array::Array));
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i64>().prop_map(Value::I64),
        (-1e9f64..1e9).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        ".{0,12}".prop_map(Value::String),
        array.prop_map(Value::Array),
    ]
}

fn spec() -> impl Strategy<Value = (DType, Vec<usize>)> {
    let dtype = proptest::sample::select(DType::all().filter(|dtype| dtype.is_ggml()).collect::<Vec<_>>());
    (dtype, vec(1usize..4, 1..=4)).prop_map(|(dtype, mut shape)| {
        shape.iter_mut().last().into_iter().for_each(|row| *row *= dtype.block_len());
        (dtype, shape)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_gguf(damages in vec(damage(), 1..4)) {
        exercise(damaged(gguf(), &damages));
    }

    #[test]
    fn damaged_safetensors(damages in vec(damage(), 1..4)) {
        exercise(damaged(safetensors(), &damages));
    }

    #[test]
    fn lenient_json_of_anything(text in "[\\[\\]{}\",:a\\\\é INafinty0-9-]{0,40}") {
        let _ = parse_lenient_json("config.json", text.as_bytes());
    }

    #[test]
    fn blocks_of_anything(bytes in vec(any::<u8>(), 300), dtype in proptest::sample::select(DType::all().collect::<Vec<_>>())) {
        let blocks = bytes.len() / dtype.block_bytes();
        let mut out = vec![0.0; blocks * dtype.block_len()];
        let _ = quant::decode(dtype, &bytes[..blocks * dtype.block_bytes()], &mut out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_gguf_comes_back(
        pairs in vec(("[a-z.]{1,8}", value()), 0..8),
        specs in vec(spec(), 0..5),
    ) {
        let metadata: Metadata = pairs.into_iter().collect();
        let name = |(index, (dtype, shape))| TensorSpec { name: format!("t{index}"), dtype, shape };
        let tensors: Vec<TensorSpec> = specs.into_iter().enumerate().map(name).collect();
        let bytes = write_gguf(3, &metadata, &tensors, |index| index as u8);
        let file = read_gguf(&bytes).unwrap();
        prop_assert_eq!(&file.metadata, &metadata);
        prop_assert_eq!(file.tensors.iter().map(TensorSpec::from).collect::<Vec<_>>(), tensors);
    }

    #[test]
    fn any_values_encode(values in vec(-1e4f32..1e4, 256)) {
        for dtype in DType::all().filter(|dtype| quant::can_encode(*dtype)) {
            let mut blocks = vec![0; dtype.row_bytes(256).unwrap()];
            quant::encode(dtype, &values, &mut blocks).unwrap();
            let mut back = vec![0.0; 256];
            quant::decode(dtype, &blocks, &mut back).unwrap();
            let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // Two steps of the coarsest format.
            prop_assert!(worst < 2.0 * 2e4 / 15.0, "{}: {}", dtype, worst);
        }
    }
}
