//! Models on a GPU, or on software that plays one.

use std::{ops::ControlFlow, path::PathBuf};

use selkie::{
    Backend, Error, GenerateOptions, Model, OpenOptions, SamplingParams, block_on,
    gpu::{Gpu, GpuOptions},
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hf")).join(name)
}

fn open(backend: Backend) -> Model {
    let options = OpenOptions { backend, exact: true, threads: Some(1), ..OpenOptions::default() };
    Model::open(&fixture("llama-gqa/model.gguf"), &options).expect("a model, and Mesa's lavapipe where there is no GPU")
}

fn continued(model: &mut Model, sampling: SamplingParams) -> Vec<u32> {
    let mut session = model.session(64).expect("a session");
    let options = GenerateOptions { max_tokens: 12, sampling, seed: 3, ignore_eos: true, ..GenerateOptions::default() };
    let generated = model.generate(&mut session, &[1, 2, 3, 4, 5], &options, &mut |_| ControlFlow::Continue(()));
    generated.expect("an answer").ids
}

#[test]
fn answers_are_those_of_the_cpu() {
    let (mut gpu, mut cpu) = (open(Backend::Gpu), open(Backend::Cpu));
    assert_eq!((gpu.backend(), cpu.backend()), ("gpu", "cpu"));
    for temperature in [0.0, 0.8] {
        let sampling = SamplingParams { temperature, ..SamplingParams::default() };
        assert_eq!(continued(&mut gpu, sampling.clone()), continued(&mut cpu, sampling), "at {temperature}");
    }
}

#[test]
fn auto_takes_hardware_only() {
    let hardware = block_on(Gpu::open(&GpuOptions::default())).is_ok();
    assert_eq!(open(Backend::Auto).backend(), if hardware { "gpu" } else { "cpu" });
}

#[test]
fn a_session_is_as_long_as_the_model_allows() {
    let model = open(Backend::Gpu);
    let context = model.spec().context.expect("a context");
    assert!(model.session(context).is_ok());
    assert!(matches!(model.session(context + 1), Err(Error::PastContext { .. })));
}

#[test]
fn devices_that_are_not_there() {
    let device = Some("Voodoo 3".to_owned());
    let options = OpenOptions { backend: Backend::Gpu, device, ..OpenOptions::default() };
    let Err(Error::Backend(what)) = Model::open(&fixture("llama-gqa/model.gguf"), &options) else {
        panic!("nothing was refused");
    };
    assert!(what.starts_with("no GPU is called \"Voodoo 3\"; there are: "), "{what}");
}

#[test]
fn a_lost_device_is_reported_and_the_model_opens_again() {
    let mut model = open(Backend::Gpu);
    let wanted = continued(&mut model, SamplingParams::default());
    let mut session = model.session(16).expect("a session");
    model.feed(&mut session, &[1, 2]).expect("a pass");
    model.gpu().expect("a GPU").gpu().destroy();
    let error = model.feed(&mut session, &[3]).expect_err("a pass on no device");
    assert!(matches!(error, Error::Model(selkie::model_spec::Error::DeviceLost(_))), "{error:?}");
    assert_eq!(continued(&mut open(Backend::Gpu), SamplingParams::default()), wanted);
}
