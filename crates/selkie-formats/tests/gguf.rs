//! GGUF files: read, written, read again.

mod common;

use std::{cell::Cell, ops::Range, time::Instant};

use bytes::Bytes;
use common::{example_metadata, fixture, now, read_gguf as read, write_gguf};
use selkie_formats::{
    ByteSource, DType, Error, LocalFuture, MemorySource, Result, TensorSpec,
    gguf::{Array, GgufFile, GgufOptions, GgufWriter, Metadata, Strings, Value},
};

#[test]
fn a_real_file_reads() {
    let file = read(&fixture("hf/llama-gqa/model-q8_0.gguf")).unwrap();
    assert_eq!((file.version, file.alignment), (3, 32));
    assert_eq!(file.metadata.need_str("general.architecture").unwrap(), "llama");
    assert_eq!(file.metadata.get_u64("llama.block_count"), Some(2));
    assert_eq!(file.metadata.get_f32("llama.rope.freq_base"), Some(10_000.0));
    assert_eq!(file.metadata.get_bool("tokenizer.ggml.add_bos_token"), Some(false));
    let tokens = file.metadata.need_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens.get(3)), (272, Some("!")));
    assert_eq!(file.metadata.get_array("tokenizer.ggml.token_type").unwrap().to_i64s().unwrap()[..4], [3, 3, 3, 1]);
    let key = file.tensors.iter().find(|tensor| tensor.name == "blk.0.attn_k.weight").unwrap();
    assert_eq!((key.dtype, &key.shape[..], key.range.clone()), (DType::Q8_0, &[32, 64][..], 43552..45728));
    assert_eq!(file.split(), None);
}

#[test]
fn real_files_are_written_as_they_were() {
    for name in ["model.gguf", "model-q8_0.gguf", "model-q4_0.gguf"] {
        let bytes = fixture(&format!("hf/llama-gqa/{name}"));
        let file = read(&bytes).unwrap();
        let specs: Vec<TensorSpec> = file.tensors.iter().map(TensorSpec::from).collect();
        let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), &file.metadata, &specs).unwrap();
        for tensor in &file.tensors {
            writer.write(&bytes[tensor.range.start as usize..tensor.range.end as usize]).unwrap();
        }
        assert!(writer.finish().unwrap() == bytes, "{name} differs");
    }
}

#[test]
fn every_value_comes_back() {
    let metadata = example_metadata();
    let tensors = [
        TensorSpec { name: "a".into(), dtype: DType::F16, shape: vec![3, 5] },
        TensorSpec { name: "b".into(), dtype: DType::Q4_K, shape: vec![2, 256] },
        TensorSpec { name: "scalar".into(), dtype: DType::F32, shape: vec![] },
    ];
    for version in [2, 3] {
        let bytes = write_gguf(version, &metadata, &tensors, |index| index as u8);
        let file = read(&bytes).unwrap();
        assert_eq!((file.version, file.alignment), (version, 64));
        assert_eq!(file.metadata, metadata);
        assert_eq!(file.tensors.iter().map(TensorSpec::from).collect::<Vec<_>>(), tensors);
        for (index, tensor) in file.tensors.iter().enumerate() {
            assert_eq!(tensor.range.start % 64, 0);
            let data = &bytes[tensor.range.start as usize..tensor.range.end as usize];
            assert!(data.iter().all(|byte| *byte == index as u8));
        }
        assert_eq!(bytes.len() % 64, 0);
    }
}

#[test]
fn getters_tell_missing_from_wrong() {
    let metadata = example_metadata();
    for key in ["u8", "u16", "u32", "u64", "i64"] {
        assert_eq!(metadata.get_u64(key), Some(200), "{key}");
    }
    assert_eq!((metadata.get_u64("i8"), metadata.get_i64("i8")), (None, Some(-3)));
    assert_eq!(
        (metadata.get_f32("f64"), metadata.get_f32("i8"), metadata.get_f32("string")),
        (Some(0.5), Some(-3.0), None)
    );
    let message = |result: Result<u64>| result.unwrap_err().to_string();
    assert_eq!(message(metadata.need_u64("none")), "made: `none`: missing");
    assert_eq!(message(metadata.need_u64("f64")), "made: `f64`: an unsigned integer wanted, but the value is f64");
    assert!(metadata.need_strings("strings").is_ok() && metadata.need_strings("numbers").is_err());
}

#[test]
fn metadata_keeps_its_order() {
    let mut metadata = example_metadata();
    let len = metadata.len();
    assert_eq!(metadata.remove("u8"), Some(Value::U8(200)));
    assert_eq!(metadata.set("u16", Value::Bool(true)), Some(Value::U16(200)));
    assert_eq!(metadata.set("new", Value::U8(1)), None);
    assert_eq!((metadata.len(), metadata.get_bool("u16"), metadata.get_u64("u8")), (len, Some(true), None));
    assert_eq!(metadata.iter().last(), Some(("new", &Value::U8(1))));
    assert_eq!(metadata.get_str("string"), Some("né"));
}

#[test]
fn writers_refuse_what_readers_would() {
    let new = |version, metadata: &Metadata, tensors: &[TensorSpec]| {
        let writer = GgufWriter::new(Vec::new(), GgufOptions { version }, metadata, tensors);
        writer.map(drop).unwrap_err().to_string()
    };
    let spec = |dtype, shape: &[usize]| TensorSpec { name: "x".into(), dtype, shape: shape.to_vec() };
    let none = Metadata::default();
    assert!(new(1, &none, &[]).contains("version 1"));
    assert!(new(3, &none, &[spec(DType::U8, &[1])]).contains("GGUF has no u8"));
    assert!(new(3, &none, &[spec(DType::F32, &[1, 1, 1, 1, 1])]).contains("[1, 1, 1, 1, 1]"));
    assert!(new(3, &none, &[spec(DType::F32, &[0])]).contains("[0]"));
    assert!(new(3, &none, &[spec(DType::Q4_0, &[2, 31])]).contains("impossible for q4_0"));
    assert!(new(3, &none, &[spec(DType::F32, &[1]), spec(DType::F32, &[1])]).contains("second"));
    assert!(new(3, &Metadata::from_iter([("general.alignment", Value::U32(24))]), &[]).contains("power of two"));
    let deep = (0..9).fold(Array::U8(vec![]), |inner, _| Array::Array(vec![inner]));
    assert!(new(3, &Metadata::from_iter([("deep", Value::Array(deep))]), &[]).contains("nested"));

    let begun = || GgufWriter::new(Vec::new(), GgufOptions::default(), &none, &[spec(DType::F32, &[2])]).unwrap();
    let mut writer = begun();
    writer.write(&[0; 7]).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("only 7 of 8"));
    assert!(begun().write(&[0; 9]).unwrap_err().to_string().contains("1 bytes more"));
}

#[test]
fn output_that_fails_is_an_error() {
    let spec = [TensorSpec { name: "x".into(), dtype: DType::F32, shape: vec![64] }];
    let mut room = [0u8; 100];
    let mut writer = GgufWriter::new(&mut room[..], GgufOptions::default(), &Metadata::default(), &spec).unwrap();
    assert!(matches!(writer.write(&[0; 256]), Err(Error::Write { .. })));
}

/// Counts how often, and how much of itself, it is asked for.
struct Counting(MemorySource, Cell<(u32, u64)>);

impl ByteSource for Counting {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, range: Range<u64>) -> LocalFuture<'_, Result<Bytes>> {
        let (reads, furthest) = self.1.get();
        self.1.set((reads + 1, furthest.max(range.end)));
        self.0.read(range)
    }
}

#[test]
fn only_the_header_is_read() {
    let words: Strings = (0..262_144).map(|index| format!("token {index}")).collect();
    let scores = (0..262_144).map(|index| index as f32).collect();
    let metadata = Metadata::from_iter([
        ("tokenizer.ggml.tokens", Value::Array(Array::String(words.clone()))),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(scores))),
    ]);
    let tensors = [TensorSpec { name: "x".into(), dtype: DType::F32, shape: vec![8 << 20] }];
    let bytes = write_gguf(3, &metadata, &tensors, |_| 0);
    let source = Counting(MemorySource::new("large", bytes), Cell::default());
    let start = Instant::now();
    let file = now(GgufFile::read(&source)).unwrap();
    println!("read in {:?}", start.elapsed());
    assert_eq!(file.metadata.need_strings("tokenizer.ggml.tokens").unwrap(), &words);
    let (reads, furthest) = source.1.get();
    assert!(reads <= 3, "{reads} reads");
    assert!(furthest <= 16 << 20 && furthest < source.len() / 2, "read up to {furthest}");
}

#[test]
fn swapped_sizes_can_be_put_right() {
    let tensors = [TensorSpec { name: "x".into(), dtype: DType::Q4_0, shape: vec![3, 64] }];
    let mut bytes = write_gguf(3, &Metadata::default(), &tensors, |_| 0);
    // The sizes, fastest first, follow the header (24), the name (8 + 1) and the number of axes (4).
    bytes[37..45].copy_from_slice(&3u64.to_le_bytes());
    bytes[45..53].copy_from_slice(&64u64.to_le_bytes());
    let file = read(&bytes).unwrap();
    let tensor = &file.tensors[0];
    assert_eq!((&tensor.shape[..], tensor.elements()), (&[64, 3][..], 192));
    let swapped = tensor.with_shape(&[3, 64]).unwrap();
    assert_eq!((&swapped.shape[..], swapped.range.clone()), (&[3, 64][..], tensor.range.clone()));
    assert_eq!(tensor.with_shape(&[64, 3]), None);
    assert_eq!(tensor.with_shape(&[4, 64]), None);
}
