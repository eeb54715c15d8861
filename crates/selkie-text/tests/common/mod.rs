//! What the tests share: the vocabularies kept in the repository.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use selkie_formats::MemorySource;
use selkie_formats::gguf::{GgufFile, Metadata};
use selkie_text::{GgufVocab, Tokenizer};

/// A file under `fixtures/`.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// The content of a JSON file under `fixtures/`.
pub fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(fixture(path)).unwrap()).unwrap()
}

/// The metadata of a model whose vocabulary is under `fixtures/text/`.
pub fn metadata(model: &str) -> Metadata {
    let file = std::fs::File::open(fixture(&format!("text/{model}.gguf.gz"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let source = MemorySource::new(model, bytes);
    let Poll::Ready(file) = pin!(GgufFile::read(&source)).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("memory never waits")
    };
    file.unwrap().metadata
}

/// The tokenizer of such a model.
pub fn tokenizer(model: &str) -> Tokenizer {
    let metadata = metadata(model);
    Tokenizer::from_gguf(&GgufVocab::from_metadata(&metadata).unwrap()).unwrap()
}

/// Bytes from hexadecimal digits.
pub fn from_hex(digits: &str) -> Vec<u8> {
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
