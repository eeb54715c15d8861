//! GGUF files: read, written, read again.

mod common;

use common::{fixture, now};
use selkie_formats::{DType, MemorySource, gguf::GgufFile};

fn read(bytes: &[u8]) -> selkie_formats::Result<GgufFile> {
    now(GgufFile::read(&MemorySource::new("test.gguf", bytes.to_vec())))
}

#[test]
fn a_real_file_reads() {
    let file = read(&fixture("hf/llama-gqa/model-q8_0.gguf")).unwrap();
    assert_eq!((file.version, file.alignment), (3, 32));
    assert_eq!(file.metadata.need_str("general.architecture").unwrap(), "llama");
    assert_eq!(file.metadata.get_u64("llama.block_count"), Some(2));
    let embedding = file.tensors.iter().find(|tensor| tensor.name == "token_embd.weight").unwrap();
    assert_eq!(embedding.dtype, DType::Q8_0);
}
