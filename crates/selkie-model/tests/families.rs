//! Families on checkpoints that are not as they should be: an answer or an error that names the thing, at once.

mod support;

use std::{cell::Cell, rc::Rc, time::Instant};

use proptest::{prelude::*, test_runner::TestRunner};
use selkie_formats::{
    Checkpoint, MemorySource, TensorSpec,
    gguf::{Array, GgufOptions, GgufWriter, Value as GgufValue},
};
use selkie_model::{Error, ModelSpec, Result, families, plan, spec::Mixer};
use selkie_suite::{DENSE, MIXTURES, RECURRENT};
use serde_json::{Value, json};
use support::{folder, gguf, logits, message, read_changed, read_with_key, safetensors};

/// The fixtures of transformers and mamba_ssm that have the file `form`.
fn with(form: &str) -> Vec<&'static str> {
    let mut all = [DENSE, MIXTURES, RECURRENT].concat();
    all.retain(|name| folder(name).join(form).exists());
    all
}

#[test]
fn unknown_families() {
    let error = message(read_changed("llama-gqa", |c| c["model_type"] = json!("walrus")));
    for known in ["walrus", "llama", "mixtral", "gemma3_text", "granite"] {
        assert!(error.contains(known), "{error}");
    }
    let error = message(read_changed("llama-gqa", |c| c["model_type"] = json!(7)));
    assert!(error.contains("model_type"), "{error}");
    let error = message(read_with_key("llama-gqa", "general.architecture", Some(GgufValue::String("walrus".into()))));
    assert!(error.contains("walrus") && error.contains("phi3"), "{error}");
    let (checkpoint, _) = safetensors("llama-gqa");
    assert!(message(families::read(&checkpoint, None)).contains("config.json"));
}

#[test]
fn missing_tensors_are_named() {
    let without = |checkpoint: Checkpoint, config: Option<&Value>, name: &str| {
        let rest = checkpoint.tensors().iter().filter(|t| t.name != name).cloned().collect();
        let mut fewer = Checkpoint::from_parts(checkpoint.sources.clone(), rest).expect("a checkpoint");
        fewer.gguf = checkpoint.gguf;
        message(families::read(&fewer, config))
    };
    let (checkpoint, config) = safetensors("llama-gqa");
    let name = "model.layers.1.self_attn.k_proj.weight";
    assert_eq!(without(checkpoint, Some(&config), name), format!("tensor `{name}` is missing"));
    let (checkpoint, config) = safetensors("mixtral");
    let name = "model.layers.0.block_sparse_moe.experts.1.w2.weight";
    assert_eq!(without(checkpoint, Some(&config), name), format!("tensor `{name}` is missing"));
    let name = "blk.0.ffn_down.weight";
    assert_eq!(without(gguf("llama-gqa"), None, name), format!("tensor `{name}` is missing"));
    let name = "token_embd.weight";
    assert_eq!(without(gguf("llama-gqa"), None, name), format!("tensor `{name}` is missing"));
}

#[test]
fn wrong_shapes_name_both() {
    let error = read_changed("llama-gqa", |c| c["intermediate_size"] = json!(95)).expect_err("a wrong width");
    let Error::Shape { tensor, found, wanted } = &error else { panic!("{error}") };
    assert_eq!(
        (tensor.as_str(), &found[..], &wanted[..]),
        ("model.layers.0.mlp.gate_proj.weight", &[96, 64][..], &[95, 64][..])
    );
    let text = error.to_string();
    assert!(text.contains("[96, 64]") && text.contains("[95, 64]"), "{text}");
    // The same sizes the other way round are an error in safetensors, whose sizes are what they say.
    let error = message(read_changed("llama-gqa", |c| {
        c["hidden_size"] = json!(96);
        c["intermediate_size"] = json!(64);
    }));
    assert!(error.contains("wanted"), "{error}");
}

#[test]
fn senseless_sizes() {
    let cases = [
        ("num_key_value_heads", json!(3), "4 query heads do not divide by 3 key heads"),
        ("num_key_value_heads", json!(0), "4 query heads do not divide by 0 key heads"),
        ("num_attention_heads", json!(0), "is 0"),
        ("num_attention_heads", json!("four"), "is not a whole number"),
        ("num_attention_heads", json!(-4), "is not a whole number"),
        ("head_dim", json!(0), "is 0"),
        ("head_dim", json!(15), "cannot turn in pairs"),
        ("head_dim", json!(1 << 30), "out of all proportion"),
        ("hidden_size", json!(0), "is 0"),
        ("hidden_size", Value::Null, "is missing"),
        ("rms_norm_eps", json!(-1.0), "is -1"),
        ("rms_norm_eps", json!("small"), "is not a number"),
        ("num_hidden_layers", json!(0), "is 0"),
        ("num_hidden_layers", json!(3), "model.layers.2."),
        ("num_hidden_layers", json!(2_000_000_000), "2000000000 layers"),
        ("num_hidden_layers", json!(4_000_000_000u64), "out of all proportion"),
        ("num_hidden_layers", json!(u64::MAX), "out of all proportion"),
    ];
    for (key, value, wanted) in cases {
        let start = Instant::now();
        let error = message(read_changed("llama-gqa", |c| c[key] = value.clone()));
        assert!(error.contains(wanted), "{key} = {value}: {error}");
        assert!(error.contains(key) || error.contains("rotary") || error.contains("tensor"), "{key}: {error}");
        assert!(start.elapsed().as_secs() < 5, "{key} = {value} took {:?}", start.elapsed());
    }
    let error = message(read_changed("llama-gqa", |c| {
        c["num_attention_heads"] = json!(3);
        c["num_key_value_heads"] = json!(3);
        c["head_dim"] = Value::Null;
    }));
    assert!(error.contains("width 64 does not divide by 3 heads"), "{error}");
}

/// Families that keep something for each layer do so only for layers that can be there.
#[test]
fn no_family_believes_in_billions_of_layers() {
    for name in with("model.safetensors") {
        let error = message(read_changed(name, |c| {
            let key = if c.get("n_layer").is_some() { "n_layer" } else { "num_hidden_layers" };
            c[key] = json!(2_000_000_000);
            c["sliding_window"] = json!(4);
            c["use_sliding_window"] = json!(true);
            c["layer_types"] = Value::Null;
        }));
        assert!(error.contains("2000000000 layers"), "{name}: {error}");
    }
}

#[test]
fn rotary_settings() {
    let rope = |parameters: Value| message(read_changed("llama-gqa", |c| c["rope_parameters"] = parameters));
    let error = rope(json!({"rope_type": "spiral"}));
    assert!(error.contains("rope_type") && error.contains("spiral"), "{error}");
    let cases = [
        (json!({"rope_theta": 0}), "rope_theta"),
        (json!({"rope_theta": -5.0}), "rope_theta"),
        (json!({"rope_theta": "ten"}), "rope_theta"),
        (json!({"rope_type": "linear"}), "factor"),
        (json!({"rope_type": "linear", "factor": 0.0}), "factor of 0"),
        (json!({"rope_type": "linear", "factor": -2.0}), "factor of -2"),
        (json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}), "high_freq_factor"),
        (json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}), "between 4"),
        (json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}), "base 1"),
        (json!({"partial_rotary_factor": 0.1}), "partial_rotary_factor"),
        (json!({"partial_rotary_factor": 2.0}), "partial_rotary_factor"),
    ];
    for (parameters, wanted) in cases {
        let error = rope(parameters.clone());
        assert!(error.contains(wanted), "{parameters}: {error}");
    }
    let longrope = |short: Value, long: Value| {
        message(read_changed("phi3", |c| {
            c["rope_parameters"] = json!({
                "rope_type": "longrope", "original_max_position_embeddings": 32, "short_factor": short,
                "long_factor": long,
            });
        }))
    };
    let four = || json!([1.0, 1.0, 2.0, 2.0]);
    let error = longrope(json!([1.0, 1.0, 1.0]), four());
    assert!(error.contains("short_factor") && error.contains("3 divisors for 4 pairs"), "{error}");
    let error = longrope(four(), json!("many"));
    assert!(error.contains("long_factor") && error.contains("not a list"), "{error}");
    let error = longrope(four(), json!([1.0, 0.0, 1.0, 1.0]));
    assert!(error.contains("not positive"), "{error}");
}

#[test]
fn experts() {
    for used in [0, 100] {
        let error = message(read_changed("mixtral", |c| c["num_experts_per_tok"] = json!(used)));
        assert!(error.contains("num_experts_per_tok") && error.contains(&format!("{used} of")), "{error}");
    }
    let key = "llama.expert_used_count";
    let error = message(read_with_key("mixtral", key, Some(GgufValue::U32(100))));
    assert!(error.contains(key) && error.contains("100 of"), "{error}");
}

#[test]
fn window_lists() {
    for types in [json!("full_attention"), json!(["full_attention"]), json!([1, 2, 3, 4, 5, 6])] {
        let error = message(read_changed("gemma3-text", |c| c["layer_types"] = types));
        assert!(error.contains("layer_types"), "{error}");
    }
}

/// What GGUF files may leave out has its usual value.
#[test]
fn gguf_defaults() {
    let theta = |spec: Result<ModelSpec>| spec.expect("a model").ropes[0].theta;
    let key = "llama.rope.freq_base";
    assert_eq!(theta(read_with_key("llama-gqa", key, Some(GgufValue::F32(5e5)))), 5e5);
    assert_eq!(theta(read_with_key("llama-gqa", key, None)), 10_000.0);

    // As many key heads as query heads: this file has fewer, and its first key matrix says so.
    let error = read_with_key("llama-gqa", "llama.attention.head_count_kv", None).expect_err("fewer key heads");
    let Error::Shape { tensor, found, wanted } = &error else { panic!("{error}") };
    assert_eq!((tensor.as_str(), &found[..], &wanted[..]), ("blk.0.attn_k.weight", &[32, 64][..], &[64, 64][..]));

    let mixture = |key: &str| {
        let spec = read_with_key("mixtral", key, None).expect("a model");
        let block = spec.layers[0].feed_forward.as_ref().expect("a feed-forward part");
        block.inner.mixture().map(|m| (m.n_experts, m.n_used)).expect("a mixture")
    };
    let (n_experts, n_used) = mixture("no such key");
    assert_eq!(mixture("llama.expert_count"), (n_experts, n_used));
    assert_eq!(mixture("llama.expert_used_count"), (n_experts, 2));

    for key in ["llama.vocab_size", "tokenizer.ggml.tokens", "llama.context_length"] {
        let spec = read_with_key("llama-gqa", key, None).expect("a model");
        assert_eq!(spec.vocab_size, 272, "without {key}");
    }
    let head_dim = |spec: ModelSpec| {
        let Mixer::Attention(a) = &spec.layers[0].mixer.as_ref().expect("a mixer").inner else { panic!("attention") };
        a.head_dim
    };
    assert_eq!(head_dim(read_with_key("llama-gqa", "llama.attention.key_length", None).expect("a model")), 16);
    // One count a layer is a schedule of another kind of model.
    let counts = GgufValue::Array(Array::U32(vec![2, 2]));
    let error = message(read_with_key("llama-gqa", "llama.attention.head_count_kv", Some(counts)));
    assert!(error.contains("llama.attention.head_count_kv"), "{error}");
}

/// Older writers record a matrix's sizes the other way round; its bytes are the same.
#[test]
fn swapped_sizes() {
    let straight = gguf("llama-gqa");
    let mut swapped = 0;
    let specs: Vec<TensorSpec> = straight
        .tensors()
        .iter()
        .map(|info| {
            let mut spec = TensorSpec::from(info);
            if spec.shape.len() == 2 && spec.shape[0] != spec.shape[1] {
                spec.shape.reverse();
                swapped += 1;
            }
            spec
        })
        .collect();
    assert!(swapped > 5);
    let metadata = straight.gguf.as_ref().expect("metadata");
    let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), metadata, &specs).expect("a header");
    for info in straight.tensors() {
        writer.write(&pollster::block_on(straight.read(info)).expect("a tensor").bytes).expect("its bytes");
    }
    let file = Rc::new(MemorySource::new("swapped.gguf", writer.finish().expect("a file")));
    let reread = pollster::block_on(Checkpoint::open_gguf(vec![file])).expect("a checkpoint");
    assert_ne!(reread.need("token_embd.weight").expect("a tensor").shape, vec![272, 64]);
    let (a, b) = (families::read(&straight, None).expect("a model"), families::read(&reread, None).expect("a model"));
    assert_eq!(logits(a, &straight), logits(b, &reread));
}

/// Any JSON value that a careless hand or a hostile one might put in a field.
fn odd_value() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(Value::Null)),
        Just(Some(json!(0))),
        Just(Some(json!(0.5))),
        Just(Some(json!(""))),
        Just(Some(json!("yarn"))),
        Just(Some(json!("longrope"))),
        Just(Some(json!("Infinity"))),
        Just(Some(json!(true))),
        Just(Some(json!([]))),
        Just(Some(json!([0, -1, "x"]))),
        Just(Some(json!({"__float__": "NaN"}))),
        Just(Some(json!({"__float__": "Infinity"}))),
        Just(Some(json!(1e300))),
        Just(Some(json!(5e-324))),
        any::<u64>().prop_map(|n| Some(json!(n))),
        any::<i64>().prop_map(|n| Some(json!(n))),
        (0u64..64).prop_map(|n| Some(json!(n))),
        (0u32..64).prop_map(|bits| Some(json!(1u64 << bits))),
        any::<f64>().prop_map(|n| Some(json!(n))),
    ]
}

/// Every field of a configuration, those of inner objects and the entries of lists too.
fn paths(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            into.push(format!("{at}/{key}"));
            paths(v, &format!("{at}/{key}"), into);
        }),
        Value::Array(entries) => entries.iter().enumerate().for_each(|(i, v)| {
            into.push(format!("{at}/{i}"));
            paths(v, &format!("{at}/{i}"), into);
        }),
        _ => {}
    }
}

/// Sets the field at `path`, or drops it where there is no value.
fn put(config: &mut Value, path: &str, value: Option<Value>) {
    let (parent, key) = path.rsplit_once('/').expect("a path");
    match (config.pointer_mut(parent), value) {
        (Some(Value::Object(fields)), Some(value)) => {
            fields.insert(key.to_owned(), value);
        }
        (Some(Value::Object(fields)), None) => {
            fields.remove(key);
        }
        (Some(Value::Array(entries)), value) => {
            if let Some(entry) = key.parse::<usize>().ok().and_then(|i| entries.get_mut(i)) {
                *entry = value.unwrap_or(Value::Null);
            }
        }
        // An earlier change took the parent away.
        _ => {}
    }
}

/// What was read can be planned, printed and run: no later step panics on what an earlier one let through.
fn runs(result: Result<ModelSpec>, checkpoint: &Checkpoint, read: &Cell<u32>) -> Result<(), TestCaseError> {
    match result {
        Ok(spec) => {
            read.set(read.get() + 1);
            prop_assert!(!plan::fuse(plan::plan(&spec)).print(&spec).is_empty());
            prop_assert_eq!(logits(spec.clone(), checkpoint).len(), 3 * spec.vocab_size);
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

#[test]
fn mutated_configurations() {
    let models: Vec<(Checkpoint, Value, Vec<String>)> = with("model.safetensors")
        .into_iter()
        .map(|name| {
            let (checkpoint, config) = safetensors(name);
            let mut fields = vec![];
            paths(&config, "", &mut fields);
            // What configurations may have besides.
            let more = ["v_head_dim", "partial_rotary_factor", "rope_scaling", "layer_types", "no_rope_layer_interval"];
            fields.extend(more.map(|key| format!("/{key}")));
            let scaling = ["factor", "beta_fast", "attention_factor", "original_max_position_embeddings", "type"];
            fields.extend(scaling.map(|key| format!("/rope_parameters/{key}")));
            (checkpoint, config, fields)
        })
        .collect();
    assert!(models.len() > 10);
    let change = (any::<prop::sample::Index>(), odd_value());
    let case = (0..models.len(), prop::collection::vec(change, 1..4));
    let (cases, read) = (1500, Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&case, |(model, changes)| {
        let (checkpoint, config, fields) = &models[model];
        let mut config = config.clone();
        for (field, value) in changes {
            put(&mut config, field.get(fields.as_slice()).as_str(), value);
        }
        runs(families::read(checkpoint, Some(&config)), checkpoint, &read)
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
    let share = f64::from(read.get()) / f64::from(cases);
    assert!((0.1..0.9).contains(&share), "{share} of them could be read: too few or too many to prove much");
}

#[test]
fn mutated_metadata() {
    let models = with("model.gguf");
    assert!(models.len() > 8);
    let odd = prop_oneof![
        Just(None),
        Just(Some(GgufValue::String("yarn".into()))),
        Just(Some(GgufValue::Bool(true))),
        Just(Some(GgufValue::Array(Array::U32(vec![0, 1])))),
        any::<u32>().prop_map(|n| Some(GgufValue::U32(n))),
        (0u32..64).prop_map(|n| Some(GgufValue::U32(n))),
        any::<u64>().prop_map(|n| Some(GgufValue::U64(n))),
        any::<i32>().prop_map(|n| Some(GgufValue::I32(n))),
        any::<f32>().prop_map(|n| Some(GgufValue::F32(n))),
    ];
    let change = (any::<prop::sample::Index>(), odd);
    let case = (0..models.len(), prop::collection::vec(change, 1..4));
    let (cases, read) = (500, Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&case, |(model, changes)| {
        let mut checkpoint = gguf(models[model]);
        let metadata = checkpoint.gguf.as_mut().expect("metadata");
        let keys: Vec<String> =
            metadata.iter().map(|(k, _)| k.to_owned()).filter(|k| !k.starts_with("token")).collect();
        for (key, value) in changes {
            match value {
                Some(value) => metadata.set(key.get(keys.as_slice()).as_str(), value),
                None => metadata.remove(key.get(keys.as_slice()).as_str()),
            };
        }
        runs(families::read(&checkpoint, None), &checkpoint, &read)
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
    let share = f64::from(read.get()) / f64::from(cases);
    assert!((0.1..0.9).contains(&share), "{share} of them could be read: too few or too many to prove much");
}
