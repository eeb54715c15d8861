//! What tests of families share: fixtures, changed before they are read.

use std::{fs, path::PathBuf, rc::Rc};

use selkie_formats::{ByteSource, Checkpoint, MemorySource, gguf::Value as GgufValue, parse_lenient_json};
use selkie_model::{Batch, Executor, ModelSpec, Result, Sequence, Want, families, reference::Reference};
use serde_json::Value;

/// The folder of a fixture.
pub fn folder(name: &str) -> PathBuf {
    selkie_suite::fixtures().join("hf").join(name)
}

fn source(path: PathBuf) -> Rc<dyn ByteSource> {
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Rc::new(MemorySource::new(path.display().to_string(), bytes))
}

/// The safetensors form of a fixture.
pub fn safetensors(name: &str) -> (Checkpoint, Value) {
    let config = fs::read(folder(name).join("config.json")).expect("config.json");
    let config = parse_lenient_json("config.json", &config).expect("JSON");
    let sources = vec![source(folder(name).join("model.safetensors"))];
    (pollster::block_on(Checkpoint::open_safetensors(sources, None)).expect("a checkpoint"), config)
}

/// The GGUF form of a fixture.
pub fn gguf(name: &str) -> Checkpoint {
    let sources = vec![source(folder(name).join("model.gguf"))];
    pollster::block_on(Checkpoint::open_gguf(sources)).expect("a checkpoint")
}

/// Reads a fixture whose configuration is changed.
pub fn read_changed(name: &str, change: impl FnOnce(&mut Value)) -> Result<ModelSpec> {
    let (checkpoint, mut config) = safetensors(name);
    change(&mut config);
    families::read(&checkpoint, Some(&config))
}

/// Reads a GGUF fixture of which one key is set, or removed where there is no value.
pub fn read_with_key(name: &str, key: &str, value: Option<GgufValue>) -> Result<ModelSpec> {
    let mut checkpoint = gguf(name);
    let metadata = checkpoint.gguf.as_mut().expect("metadata");
    match value {
        Some(value) => metadata.set(key, value),
        None => metadata.remove(key),
    };
    families::read(&checkpoint, None)
}

/// The message of the error that must have come.
#[track_caller]
pub fn message(result: Result<ModelSpec>) -> String {
    result.expect_err("this should not be read").to_string()
}

/// The logits of three tokens.
pub fn logits(spec: ModelSpec, checkpoint: &Checkpoint) -> Vec<f32> {
    let weights = pollster::block_on(spec.weights.load(checkpoint)).expect("weights");
    let mut reference = Reference::<f32>::new(spec, weights);
    let mut state = pollster::block_on(reference.new_state(3)).expect("a state");
    let batch =
        Batch { ids: &[1, 5, 2], sequences: &[Sequence { rows: 0..3 }], outputs: &[0, 1, 2], want: Want::Logits };
    pollster::block_on(reference.forward(&batch, &mut [&mut state])).expect("a forward pass").values
}
