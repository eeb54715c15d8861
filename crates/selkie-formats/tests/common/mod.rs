//! What the tests share: the fixtures, and a runner for futures that never wait.

#![allow(dead_code, reason = "not every test uses everything")]

use std::{path::PathBuf, pin::pin, rc::Rc, task};

use selkie_formats::{
    ByteSource, MemorySource, Result, TensorSpec,
    gguf::{Array, GgufFile, GgufOptions, GgufWriter, Metadata, Value},
    mbjs::Config,
};

/// Runs a future over sources in memory, which are always ready.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut task::Context::from_waker(task::Waker::noop())) {
        task::Poll::Ready(value) => value,
        task::Poll::Pending => panic!("a source in memory made us wait"),
    }
}

/// The repository's `fixtures/`.
fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The bytes of a file in the repository's `fixtures/`.
pub fn fixture(path: &str) -> Vec<u8> {
    let full = fixtures().join(path);
    std::fs::read(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// A source over bytes.
pub fn source(name: &str, bytes: Vec<u8>) -> Rc<dyn ByteSource> {
    Rc::new(MemorySource::new(name, bytes))
}

/// Reads a GGUF header that must be called `test.gguf` in errors.
pub fn read_gguf(bytes: &[u8]) -> Result<GgufFile> {
    now(GgufFile::read(&MemorySource::new("test.gguf", bytes.to_vec())))
}

/// Writes a GGUF file; all bytes of tensor `i` are `fill(i)`.
pub fn write_gguf(version: u32, metadata: &Metadata, tensors: &[TensorSpec], fill: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut writer = GgufWriter::new(Vec::new(), GgufOptions { version }, metadata, tensors).unwrap();
    for (index, tensor) in tensors.iter().enumerate() {
        writer.write(&vec![fill(index); tensor.dtype.tensor_bytes(&tensor.shape).unwrap()]).unwrap();
    }
    writer.finish().unwrap()
}

/// A value of every type; the alignment is 64.
pub fn example_metadata() -> Metadata {
    let nested = Array::Array(vec![Array::Array(vec![Array::U8(vec![1]), Array::Bool(vec![])]), Array::Array(vec![])]);
    let mut metadata = Metadata::new("made");
    for (key, value) in [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(200)),
        ("i16", Value::I16(-300)),
        ("u32", Value::U32(200)),
        ("i32", Value::I32(-70_000)),
        ("u64", Value::U64(200)),
        ("i64", Value::I64(200)),
        ("f32", Value::F32(1.5)),
        ("f64", Value::F64(0.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("né".into())),
        ("empty", Value::String(String::new())),
        ("general.alignment", Value::U32(64)),
        ("strings", Value::Array(Array::String(["", "a", "Ġthe"].iter().collect()))),
        ("numbers", Value::Array(Array::I16(vec![-1, 0, 1]))),
        ("floats", Value::Array(Array::F64(vec![0.25; 3]))),
        ("bools", Value::Array(Array::Bool(vec![true, false]))),
        ("nested", Value::Array(nested)),
    ] {
        metadata.set(key, value);
    }
    metadata
}

/// A case of `fixtures/mbjs`.
pub struct MbjsCase {
    /// Its folder.
    pub name: String,
    /// Its `config.json`: the model, and what was recorded.
    pub json: serde_json::Value,
    /// The model in it.
    pub config: Config,
}

impl MbjsCase {
    /// The bytes of a file of the case, where it has it.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(fixtures().join("mbjs").join(&self.name).join(name)).ok()
    }
}

/// The cases of `fixtures/mbjs`.
pub fn fixtures_of_mbjs() -> Vec<MbjsCase> {
    let folders = std::fs::read_dir(fixtures().join("mbjs")).unwrap();
    let mut names: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let cases: Vec<_> = (names.into_iter())
        .filter(|name| fixtures().join("mbjs").join(name).join("config.json").exists())
        .map(|name| {
            let bytes = fixture(&format!("mbjs/{name}/config.json"));
            let (json, config) = (serde_json::from_slice(&bytes).unwrap(), Config::parse(&name, &bytes).unwrap());
            MbjsCase { name, json, config }
        })
        .collect();
    assert_eq!(cases.len(), 26);
    cases
}
