//! MBJS models whose tensors and configuration do not agree, as other files than MBJS's own may have them.

use selkie_formats::{Checkpoint, mbjs::Config};
use selkie_model::{Batch, Error, Executor, ModelSpec, Result, Sequence, Want, families, reference::Reference};
use selkie_suite::{MBJS, MbjsCase};
use serde_json::{Value, json};

/// The same tensors, changed.
fn changed(case: &MbjsCase, change: impl Fn(&mut Vec<selkie_formats::TensorInfo>)) -> Result<ModelSpec> {
    let checkpoint = case.checkpoint();
    let mut tensors = checkpoint.tensors().to_vec();
    change(&mut tensors);
    let mut other = Checkpoint::from_parts(checkpoint.sources.clone(), tensors).expect("a checkpoint");
    other.mbjs = checkpoint.mbjs;
    families::read(&other, None)
}

#[test]
fn missing_tensors_are_named() {
    let case = MbjsCase::open("hy-all-batch2");
    for parameter in case.config.parameters() {
        let error =
            changed(&case, |tensors| tensors.retain(|t| t.name != parameter.name)).expect_err("a missing tensor");
        assert_eq!(error.to_string(), format!("tensor `{}` is missing", parameter.name));
    }
}

#[test]
fn wrong_shapes_name_both() {
    let case = MbjsCase::open("hy-all-batch2");
    let error = changed(&case, |tensors| {
        tensors.iter_mut().filter(|t| t.name == "layer1.wInProj").for_each(|t| t.shape.reverse());
    });
    let Err(Error::Shape { tensor, found, wanted }) = error else { panic!("{error:?}") };
    assert_eq!((tensor.as_str(), &found[..], &wanted[..]), ("layer1.wInProj", &[32, 78][..], &[78, 32][..]));
}

/// What is read can be run; everything else is an error, whatever the configuration says of the tensors.
#[test]
fn other_configurations() {
    let keys = ["vocabSize", "dModel", "dState", "dConv", "expand", "nHeads", "nGroups", "numLayers", "chunkLen"];
    let values = [json!(1), json!(2), json!(3), json!(8), json!(64), json!(1 << 20), json!(0.5), json!(-1), json!("x")];
    let (mut read, mut refused) = (0, 0);
    for name in MBJS {
        let case = MbjsCase::open(name);
        let mut checkpoint = case.checkpoint();
        for (key, value) in keys.iter().flat_map(|key| values.iter().map(move |value| (key, value))) {
            let mut json = case.config.json().clone();
            json.insert((*key).to_owned(), value.clone());
            let Ok(config) = Config::from_json("config.json", Value::Object(json)) else {
                refused += 1;
                continue;
            };
            checkpoint.mbjs = Some(config);
            match families::read(&checkpoint, None) {
                Ok(spec) => {
                    read += 1;
                    let weights = pollster::block_on(spec.weights.load(&checkpoint)).expect("weights");
                    let mut reference = Reference::<f32>::new(spec, weights);
                    let mut state = pollster::block_on(reference.new_state(2)).expect("a state");
                    let sequences = [Sequence { rows: 0..2 }];
                    let batch = Batch { ids: &[0, 1], sequences: &sequences, outputs: &[0, 1], want: Want::Logits };
                    pollster::block_on(reference.forward(&batch, &mut [&mut state])).expect("a forward pass");
                }
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(text.contains("layer") || text.contains("embedding") || text.contains("norm"), "{text}");
                }
            }
        }
    }
    // Sizes that are of no layer, or are as they were.
    assert!(read > 100 && refused > 1000, "{read} were read, {refused} refused");
}
