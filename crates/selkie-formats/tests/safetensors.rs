//! safetensors files and checkpoints: read, written, and wrong in one way each.

mod common;

use std::{collections::BTreeMap, rc::Rc};

use common::{fixture, now, source, write_gguf};
use selkie_formats::{
    ByteSource, Checkpoint, DType, MemorySource, TensorSpec,
    gguf::{Metadata, Value},
    safetensors::{SafetensorsFile, SafetensorsWriter, ShardIndex},
};

/// A file with that header and so much data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn read(bytes: Vec<u8>) -> selkie_formats::Result<SafetensorsFile> {
    now(SafetensorsFile::read(&MemorySource::new("test.st", bytes)))
}

#[track_caller]
fn refused(bytes: Vec<u8>, wanted: &str) {
    let error = read(bytes).unwrap_err().to_string();
    assert!(error.starts_with("test.st: ") && !error.contains('\n'), "{error}");
    assert!(error.contains(wanted), "`{error}` does not say `{wanted}`");
}

fn spec(name: &str, dtype: DType, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.into(), dtype, shape: shape.to_vec() }
}

fn written(notes: &BTreeMap<String, String>, specs: &[TensorSpec]) -> Vec<u8> {
    let mut writer = SafetensorsWriter::new(Vec::new(), notes, specs).unwrap();
    for spec in specs {
        writer.write(&vec![spec.name.len() as u8; spec.dtype.tensor_bytes(&spec.shape).unwrap()]).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn real_files_read() {
    let checkpoint = now(Checkpoint::open(vec![source("model", fixture("hf/llama-gqa/model.safetensors"))])).unwrap();
    let tensor = now(checkpoint.load("model.layers.0.self_attn.k_proj.weight")).unwrap();
    assert_eq!((tensor.dtype, &tensor.shape[..]), (DType::F32, &[32, 64][..]));
    // The GGUF file of the same model has the same values (keys are permuted there, values are not).
    let gguf = now(Checkpoint::open(vec![source("gguf", fixture("hf/llama-gqa/model.gguf"))])).unwrap();
    let one = now(checkpoint.load("model.layers.1.self_attn.v_proj.weight")).unwrap();
    let other = now(gguf.load("blk.1.attn_v.weight")).unwrap();
    assert_eq!((one.shape.clone(), one.to_f32().unwrap()), (other.shape.clone(), other.to_f32().unwrap()));
    assert_eq!(gguf.gguf.as_ref().unwrap().get_str("general.architecture"), Some("llama"));
    let error = gguf.need("blk.9.attn_v.weight").unwrap_err().to_string();
    assert_eq!(error, "gguf: tensor `blk.9.attn_v.weight`: missing");
}

#[test]
fn what_is_written_comes_back() {
    let notes = BTreeMap::from([("made".to_owned(), "by \"hand\"".to_owned())]);
    let specs = [
        spec("long", DType::I64, &[3]),
        spec("b", DType::F32, &[2, 2]),
        spec("scalar", DType::BF16, &[]),
        spec("empty", DType::F16, &[0, 4]),
        spec("é", DType::U8, &[5]),
    ];
    let bytes = written(&notes, &specs);
    let header = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    assert_eq!(header % 8, 0);
    assert_eq!(bytes, written(&notes, &specs));
    let text = std::str::from_utf8(&bytes[8..8 + header as usize]).unwrap();
    let order: Vec<_> = ["__metadata__", "\"b\"", "\"empty\"", "\"long\""].iter().map(|name| text.find(name)).collect();
    assert!(order.is_sorted() && order[0].is_some(), "{text}");

    let file = read(bytes.clone()).unwrap();
    assert_eq!(file.metadata, notes);
    for spec in &specs {
        let found = file.tensors.iter().find(|tensor| tensor.name == spec.name).unwrap();
        assert_eq!(TensorSpec::from(found), *spec);
        let data = &bytes[found.range.start as usize..found.range.end as usize];
        assert!(data.iter().all(|byte| *byte == spec.name.len() as u8));
    }
}

#[test]
fn writers_refuse_what_readers_would() {
    let new = |specs: &[TensorSpec]| {
        SafetensorsWriter::new(Vec::new(), &BTreeMap::new(), specs).map(drop).unwrap_err().to_string()
    };
    assert!(new(&[spec("x", DType::Q4_0, &[32])]).contains("tensor `x`: safetensors files have no q4_0"));
    assert!(new(&[spec("x", DType::F32, &[1]), spec("x", DType::F32, &[1])]).contains("second"));
    assert!(new(&[spec("x", DType::F32, &[usize::MAX, 2])]).contains("impossible"));
}

#[test]
fn types_that_are_not_known_are_listed() {
    let header = r#"{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]},"b":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[3,5]}}"#;
    let checkpoint = now(Checkpoint::open(vec![source("test.st", raw(header, 5))])).unwrap();
    assert_eq!((checkpoint.unknown[0].name.as_str(), checkpoint.unknown[0].dtype.as_str()), ("a", "F6_E2M3"));
    let error = now(checkpoint.load("a")).unwrap_err().to_string();
    assert_eq!(error, "test.st: tensor `a`: its type `F6_E2M3` is not supported");
    let read = now(checkpoint.load("b")).unwrap();
    assert_eq!(read.to_f32().unwrap_err().to_string(), "f8_e4m3 is not a type of weights");
}

#[test]
fn malformed_headers() {
    let entry = |offsets: &str| format!(r#"{{"x":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}"#);
    assert!(read(raw(&entry("[0,8]"), 8)).is_ok());
    refused(vec![], "only 0 bytes");
    refused(u64::MAX.to_le_bytes().to_vec(), "a header of 18446744073709551615 bytes");
    refused(raw("", 0), "does not begin with `{`");
    refused(raw(" {}", 0), "does not begin with `{`");
    refused(raw("{", 0), "at byte 8: the header: EOF");
    refused(raw("{}{}", 0), "trailing");
    refused(raw("{\"\u{e9}", 0)[..10].to_vec(), "a header of 4 bytes");
    let mut bytes = raw("{  }", 0);
    bytes[9] = 0xff;
    refused(bytes, "at byte 9: the header is not UTF-8");
    refused(raw(&entry("[0,8]"), 7), "tensor `x`: offsets 0..8 are not inside the 7 bytes of data");
    refused(raw(&entry("[8,0]"), 8), "offsets 8..0");
    refused(raw(&entry("[0,18446744073709551615]"), 8), "tensor `x`: offsets");
    refused(raw(&entry("[0,4]"), 8), "its 4 bytes are not those of f32 [2]");
    refused(raw(&entry("[-1,8]"), 8), "the header: invalid value");
    refused(raw(&entry("[0,8]"), 9), "no tensor has the bytes from here to");
    refused(raw(&entry("[1,9]"), 9), "no tensor has the bytes");
    refused(raw(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), "`__metadata__` comes twice");
    refused(raw(r#"{"__metadata__":{"a":1}}"#, 0), "the header: invalid type");
    refused(raw(r#"{"x":{"dtype":"F32","shape":[2]}}"#, 0), "missing field `data_offsets`");
    let huge = r#"{"x":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,8]}}"#;
    refused(raw(huge, 8), "not those of f32 [9223372036854775807, 4]");
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    refused(raw(&deep, 0), "the header: ");
    let two = |a: &str, b: &str, second: &str| {
        let entry = |name, offsets| format!(r#""{name}":{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
        format!("{{{},{}}}", entry("x", a), entry(second, b))
    };
    refused(raw(&two("[0,4]", "[4,8]", "x"), 8), "`x` comes twice");
    refused(raw(&two("[0,4]", "[3,7]", "y"), 7), "tensor `y`: its bytes");
}

/// Part `number` of `count` of a split GGUF file, with one tensor.
fn part(number: u16, count: u16, total: i32, name: &str) -> Rc<dyn ByteSource> {
    let metadata = Metadata::from_iter([
        ("split.no", Value::U16(number)),
        ("split.count", Value::U16(count)),
        ("split.tensors.count", Value::I32(total)),
    ]);
    source(&format!("part {number}"), write_gguf(3, &metadata, &[spec(name, DType::F32, &[2])], |_| number as u8))
}

#[test]
fn split_gguf_files_are_one_model() {
    let open = |parts: &[Rc<dyn ByteSource>]| now(Checkpoint::open(parts.to_vec()));
    let checkpoint = open(&[part(0, 2, 2, "a"), part(1, 2, 2, "b")]).unwrap();
    assert_eq!(checkpoint.get("b").unwrap().source, 1);
    assert_eq!(now(checkpoint.load("b")).unwrap().bytes[..], [1; 8]);

    let error = |parts: &[Rc<dyn ByteSource>]| open(parts).err().unwrap().to_string();
    assert!(error(&[part(0, 2, 2, "a")]).contains("part 1 of 2, but 1 files were given"));
    assert!(error(&[part(1, 2, 2, "b"), part(0, 2, 2, "a")]).contains("part 2 of 2, but part 1 was expected"));
    assert!(error(&[part(0, 2, 2, "a"), part(1, 2, 2, "a")]).contains("part 1: tensor `a`: a second tensor"));
    assert!(error(&[part(0, 2, 3, "a"), part(1, 2, 3, "b")]).contains("3 tensors, but all parts together have 2"));
    assert!(error(&[]).contains("no files"));
}

#[test]
fn shards_are_checked_against_their_index() {
    let shard = |name: &str| source(name, written(&BTreeMap::new(), &[spec(name, DType::F32, &[2])]));
    let open = |map: &str| {
        let index = ShardIndex::parse("index.json", format!(r#"{{"weight_map":{{{map}}}}}"#).as_bytes()).unwrap();
        now(Checkpoint::open_safetensors(vec![shard("a"), shard("b")], Some(&index)))
    };
    assert_eq!(open(r#""a":"1.st","b":"2.st""#).unwrap().get("b").unwrap().source, 1);
    let error = |map: &str| open(map).err().unwrap().to_string();
    let wrong = "index.json: tensor `a`: the index says that it is in `2.st`, but it is not";
    assert_eq!(error(r#""a":"2.st","b":"1.st""#), wrong);
    assert_eq!(error(r#""a":"1.st""#), "index.json: tensor `b`: the index does not know it");
    assert!(error(r#""a":"1.st","b":"2.st","c":"2.st""#).contains("`c`"));
}
