//! What holds an executor to the reference, with the CPU's.

use selkie::{Backend, Model, OpenOptions};
use selkie_suite::fixtures;

#[test]
fn kernels_and_matrices() {
    let options = OpenOptions { backend: Backend::Cpu, threads: Some(1), ..OpenOptions::default() };
    let path = fixtures().join("hf/llama-gqa/model-q8_0.gguf");
    let model = Model::open(&path, &options).expect("a model");
    let mut checks = model.check_now(None).expect("kernels");
    assert_eq!(checks.len(), 8, "four kinds of layers, blocks of rows and single ones");
    for (name, ..) in model.matrices() {
        checks.extend(model.check_now(Some(&name)).expect("a matrix"));
    }
    for check in checks {
        assert!(check.ok(), "{} is off by {:.1e}", check.name, check.error);
    }
    assert!(model.check_now(Some("no such matrix")).is_err());
}
