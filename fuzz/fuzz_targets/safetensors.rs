//! Any bytes as a safetensors file: refused in one line, or read, decoded, and written to a file that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selkie_formats::{
    Checkpoint, TensorSpec,
    safetensors::{SafetensorsFile, SafetensorsWriter},
};
use selkie_fuzz::{now, read_all, source};

fuzz_target!(|data: &[u8]| {
    let source = source(data);
    let file = match now(SafetensorsFile::read(source.as_ref())) {
        Ok(file) => file,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let specs: Vec<TensorSpec> = file.tensors.iter().map(TensorSpec::from).collect();
    let mut writer = SafetensorsWriter::new(Vec::new(), &file.metadata, &specs).expect("tensors that were read");
    for tensor in &file.tensors {
        let bytes = now(source.read(tensor.range.clone())).expect("a tensor inside its file");
        writer.write(&bytes).expect("memory to write to");
    }
    let written = writer.finish().expect("all tensors were written");
    let again = now(SafetensorsFile::read(selkie_fuzz::source(&written).as_ref())).expect("what was written");
    assert_eq!(again.metadata, file.metadata);
    assert_eq!(again.tensors.len(), specs.len());
    if let Ok(checkpoint) = now(Checkpoint::open_safetensors(vec![source], None)) {
        read_all(&checkpoint);
    }
});
