//! Any bytes as a GGUF file: refused in one line, or read, decoded, and written to a file that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selkie_formats::{
    Checkpoint, TensorSpec,
    gguf::{GgufFile, GgufOptions, GgufWriter},
};
use selkie_fuzz::{now, read_all, source};

fuzz_target!(|data: &[u8]| {
    let source = source(data);
    let file = match now(GgufFile::read(source.as_ref())) {
        Ok(file) => file,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let specs: Vec<TensorSpec> = file.tensors.iter().map(TensorSpec::from).collect();
    // A matrix whose sizes are swapped is read, but not written.
    if let Ok(mut writer) = GgufWriter::new(Vec::new(), GgufOptions { version: file.version }, &file.metadata, &specs) {
        for tensor in &file.tensors {
            let bytes = now(source.read(tensor.range.clone())).expect("a tensor inside its file");
            writer.write(&bytes).expect("memory to write to");
        }
        let written = writer.finish().expect("all tensors were written");
        let again = now(GgufFile::read(selkie_fuzz::source(&written).as_ref())).expect("what was written");
        // As text, where NaN is NaN.
        assert_eq!(format!("{:?}", again.metadata), format!("{:?}", file.metadata));
        assert!(again.tensors.iter().map(TensorSpec::from).eq(specs));
    }
    if let Ok(checkpoint) = now(Checkpoint::open_gguf(vec![source])) {
        read_all(&checkpoint);
    }
});
