//! Which model a state belongs to.
//!
//! The id is a SHA-256 over what the files say and a little of each tensor, so that it is known in milliseconds whatever
//! the model's size. SHA-256 because the checksums of downloads need it anyway, and a few megabytes take no time.
//!
//! Hashed are, each after its length as 8 bytes, little-endian:
//!
//! 1. `selkie model 1`;
//! 2. the settings: GGUF metadata as a header of GGUF version 3 without tensors (less the `split.…` keys, which tell
//!    parts of one model apart), or the configuration as JSON without spaces, keys in the file's order; nothing where
//!    there is neither;
//! 3. for each tensor, sorted by name: the name; `TYPE [SIZES]` as in `q4_k [576, 1536]`, slowest axis first; its
//!    bytes where they are at most 6144, else the first 2048, the 2048 from `(length - 2048) / 2` on, and the last 2048.
//!
//! The id is the first 16 bytes of the hash, in hexadecimal. Where a file lies, how it is read, in how many parts it is
//! and what runs it makes no difference; other weights, types or settings do.

use selkie_formats::{
    Checkpoint, TensorInfo,
    gguf::{GgufOptions, GgufWriter, Metadata, SPLIT_KEYS},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Result;

/// Bytes of a piece of a tensor.
const PIECE: u64 = 2048;

/// The id of a model: 32 hexadecimal digits.
pub(crate) async fn model_id(checkpoint: &Checkpoint, config: Option<&Value>) -> Result<String> {
    let mut hash = Hash(Sha256::new());
    hash.field(b"selkie model 1");
    match (&checkpoint.gguf, config) {
        (Some(metadata), _) => hash.field(&settings(metadata)?),
        (None, Some(config)) => hash.field(config.to_string().as_bytes()),
        (None, None) => hash.field(b""),
    }
    let mut tensors: Vec<&TensorInfo> = checkpoint.tensors().iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    for info in tensors {
        hash.field(info.name.as_bytes());
        hash.field(format!("{} {:?}", info.dtype, info.shape).as_bytes());
        let source = &checkpoint.sources[info.source];
        let mut sample = Vec::with_capacity(3 * PIECE as usize);
        for (start, len) in pieces(info.range.end - info.range.start) {
            let start = info.range.start + start;
            sample.extend_from_slice(&source.read(start..start + len).await?);
        }
        hash.field(&sample);
    }
    let digest = hash.0.finalize();
    Ok(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Start and length of what is hashed of a tensor of `len` bytes.
fn pieces(len: u64) -> Vec<(u64, u64)> {
    if len <= 3 * PIECE {
        return vec![(0, len)];
    }
    vec![(0, PIECE), ((len - PIECE) / 2, PIECE), (len - PIECE, PIECE)]
}

fn settings(metadata: &Metadata) -> Result<Vec<u8>> {
    let pairs = metadata.iter().filter(|(key, _)| !SPLIT_KEYS.contains(key));
    let metadata: Metadata = pairs.map(|(key, value)| (key, value.clone())).collect();
    Ok(GgufWriter::new(vec![], GgufOptions { version: 3 }, &metadata, &[])?.finish()?)
}

struct Hash(Sha256);

impl Hash {
    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use selkie_formats::{DType, MemorySource};

    use super::*;

    fn id(bytes: &[u8], dtype: DType, shape: &[usize], config: Option<Value>) -> String {
        let source = Rc::new(MemorySource::new("x", bytes.to_vec()));
        let range = 0..dtype.tensor_bytes(shape).expect("a size") as u64;
        let tensor = TensorInfo { name: "w".into(), dtype, shape: shape.to_vec(), source: 0, range };
        let checkpoint = Checkpoint::from_parts(vec![source], vec![tensor]).expect("a checkpoint");
        pollster::block_on(model_id(&checkpoint, config.as_ref())).expect("an id")
    }

    /// Files depend on it. Computed apart from this program.
    #[test]
    fn the_id_is_the_documented_one() {
        let bytes: Vec<u8> = (0..16_000u32).map(|i| (i % 251) as u8).collect();
        let config = serde_json::json!({"b": 1, "a": [2.5, "x"]});
        assert_eq!(id(&bytes, DType::F32, &[40, 100], Some(config)), "01d357bea6e132377dc19f94ac3b621f");
        assert_eq!(id(&bytes, DType::F32, &[8], None), "bca34c71384b7891f1fecd7ffa37da10");
    }

    #[test]
    fn other_weights_types_shapes_and_settings_are_other_models() {
        let bytes = vec![7u8; 16_000];
        let first = id(&bytes, DType::F32, &[40, 100], None);
        for at in [0, 2047, 8000, 15_999] {
            let mut other = bytes.clone();
            other[at] = 8;
            assert_ne!(id(&other, DType::F32, &[40, 100], None), first, "byte {at}");
        }
        assert_ne!(id(&bytes, DType::F32, &[100, 40], None), first);
        assert_ne!(id(&bytes, DType::F16, &[80, 100], None), first);
        assert_ne!(id(&bytes, DType::F32, &[40, 100], Some(Value::Null)), first);
    }
}
