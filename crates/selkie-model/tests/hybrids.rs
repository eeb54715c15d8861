//! Families of recurrent layers and hybrids on checkpoints that are not as they should be, or not as the fixtures are.

mod support;

use std::rc::Rc;

use selkie_formats::{
    Checkpoint, MemorySource, TensorInfo, TensorSpec,
    gguf::{Array, GgufOptions, GgufWriter, Metadata, Value as GgufValue},
};
use selkie_model::{families, spec::Mixer};
use serde_json::{Value, json};
use support::{gguf, logits, message, read_changed, read_with_key, safetensors};

/// Sets `a.b.c` in a configuration.
fn set(config: &mut Value, key: &str, value: &Value) {
    let path = format!("/{}", key.replace('.', "/"));
    match config.pointer_mut(&path) {
        Some(place) => *place = value.clone(),
        None => {
            let (parent, name) = path.rsplit_once('/').expect("a path");
            config.pointer_mut(parent).expect("a parent")[name] = value.clone();
        }
    }
}

#[test]
fn senseless_sizes() {
    let cases = [
        ("mamba", "state_size", json!(0), "is 0"),
        ("mamba", "state_size", json!("eight"), "is not a whole number"),
        ("mamba", "intermediate_size", json!(0), "is 0"),
        ("mamba", "intermediate_size", json!(65), "in_proj"),
        ("mamba", "conv_kernel", json!(0), "is 0"),
        ("mamba", "time_step_rank", json!(0), "is 0"),
        ("falcon-mamba", "mixer_rms_eps", json!("Infinity"), "mixer_rms_eps"),
        ("mamba2-g2", "num_heads", json!(7), "7 heads do not divide by 2 groups"),
        ("mamba2-g2", "n_groups", json!(3), "8 heads do not divide by 3 groups"),
        ("mamba2-g2", "n_groups", json!(16), "8 heads do not divide by 16 groups"),
        ("mamba2-g2", "n_groups", json!(0), "is 0"),
        ("mamba2-g2", "head_dim", json!(0), "is 0"),
        ("mamba2-g2", "head_dim", json!(u32::MAX >> 1), "out of all proportion"),
        ("mamba2-g2", "state_size", json!(u32::MAX >> 1), "out of all proportion"),
        ("mamba2-g2", "time_step_limit", json!([2.0, 1.0]), "not two limits in order"),
        ("mamba2-g2", "time_step_limit", json!([0.0]), "not two limits in order"),
        ("mamba2-g2", "time_step_limit", json!(["NaN", 1.0]), "not two limits in order"),
        ("bamba", "mamba_n_heads", json!(3), "shape [64] where [24] is wanted"),
        ("bamba", "attn_layer_indices", json!([9]), "9 is none of 3 layers"),
        ("bamba", "attn_layer_indices", json!("two"), "is not a list"),
        ("granitemoehybrid", "num_key_value_heads", json!(3), "4 query heads do not divide by 3 key heads"),
        ("granitemoehybrid", "num_attention_heads", Value::Null, "layer 1 attends"),
        ("granitemoehybrid", "logits_scaling", json!(0), "is 0"),
        ("jamba", "attn_layer_offset", json!(4), "is 4, not below the period of 4"),
        ("jamba", "attn_layer_period", json!(0), "is 0"),
        ("jamba", "mamba_expand", json!(-1), "mamba_expand"),
        ("jamba", "mamba_expand", json!(1e300), "mamba_expand"),
        ("lfm2", "conv_L_cache", json!(0), "is 0"),
        ("falcon-h1", "mlp_multipliers", json!([1.0]), "is not 2 numbers"),
        ("falcon-h1", "ssm_multipliers", json!([1.0, 2.0, "x", 1.0, 1.0]), "is not 5 numbers"),
        ("falcon-h1", "mamba_n_groups", json!(9), "8 heads do not divide by 9 groups"),
        ("nemotron-h", "time_step_min", json!(-1.0), "is -1"),
        ("nemotron-h-moe", "moe_latent_size", json!(8), "space of their own"),
        ("zamba2", "num_mem_blocks", json!(0), "is 0"),
        ("zamba2", "num_key_value_heads", json!(3), "4 query heads do not divide by 3 key heads"),
        ("zamba2", "n_mamba_heads", json!(7), "a width of 64 does not divide by 7"),
        ("zamba2", "adapter_rank", json!(9), "adapter"),
        ("qwen3next", "linear_num_value_heads", json!(3), "3 value heads do not divide by 2 key heads"),
        ("qwen3next", "linear_num_key_heads", json!(8), "4 value heads do not divide by 8 key heads"),
        ("ssm-mamba2", "ssm_cfg.headdim", json!(7), "a width of 64 does not divide by 7"),
        ("ssm-mamba2", "ssm_cfg.d_ssm", json!(32), "not the whole width of 64"),
        ("ssm-mamba3-siso", "ssm_cfg.layer", json!("Mamba9"), "`Mamba9` is not known"),
        ("ssm-mamba3-siso", "ssm_cfg.ngroups", json!(3), "8 heads do not divide by 3 groups"),
        ("ssm-mamba3-siso", "ssm_cfg.headdim", json!(7), "a width of 64 does not divide by 7"),
        ("ssm-mamba3-siso", "ssm_cfg.rope_fraction", json!(0.0), "rope_fraction"),
        ("ssm-mamba3-siso", "ssm_cfg.rope_fraction", json!(1.5), "rope_fraction"),
        ("ssm-mamba3-siso", "ssm_cfg.a_activation", json!("relu"), "`relu` is not known"),
        ("ssm-mamba3-siso", "ssm_cfg.A_floor", json!(-1.0), "is -1"),
        ("ssm-mamba3-mimo", "ssm_cfg.mimo_rank", json!(3), "in_proj"),
        ("ssm-mamba3-mimo", "ssm_cfg.mimo_rank", json!(1 << 30), "out of all proportion"),
        ("ssm-mamba1", "rms_norm", json!(false), "root-mean-square"),
        ("ssm-mamba1", "attn_layer_idx", json!([1]), "num_heads"),
        ("ssm-mamba1", "attn_layer_idx", json!([3]), "3 is none of 3 layers"),
    ];
    for (fixture, key, value, wanted) in cases {
        let error = message(read_changed(fixture, |c| set(c, key, &value)));
        assert!(error.contains(wanted), "{fixture}: {key} = {value}: {error}");
        // Whatever is wrong with one setting alone names it.
        let alone = ["is 0", "is -1", "is not a whole number"].contains(&wanted);
        assert!(!alone || error.starts_with(&format!("setting `{key}`: ")), "{fixture}: {key} = {value}: {error}");
    }
    let error = message(read_changed("zamba2", |c| {
        c["num_attention_heads"] = json!(5);
        c["num_key_value_heads"] = Value::Null;
    }));
    assert!(error.contains("width 64 does not divide by 5 heads"), "{error}");
    // A head's width that the model chooses.
    let error = message(read_changed("bamba", |c| {
        c["mamba_d_head"] = json!("auto");
        c["mamba_n_heads"] = json!(7);
    }));
    assert!(error.contains("a width of 64 does not divide by 7") && error.contains("mamba_n_heads"), "{error}");
}

/// Lists with one entry a layer: their lengths and their words are checked, and both sizes or the layer named.
#[test]
fn layer_lists() {
    let mamba = "linear_attention";
    let cases = [
        ("granitemoehybrid", "layer_types", json!(["mamba", "attention"]), "has 2 entries, one for each of 3 layers"),
        (
            "granitemoehybrid",
            "layer_types",
            json!(["mamba", "walrus", "mamba"]),
            "layer 1: `walrus` is not known (mamba,",
        ),
        ("granitemoehybrid", "layer_types", json!(["mamba", "mamba", 7]), "layer 2: 7 is not a word"),
        ("granitemoehybrid", "layer_types", json!("mamba"), "is not a list"),
        ("lfm2", "layer_types", json!(["conv", "conv"]), "has 2 entries, one for each of 3 layers"),
        (
            "lfm2",
            "layer_types",
            json!(["conv", "conv", "mamba"]),
            "layer 2: `mamba` is not known (conv, full_attention",
        ),
        ("zamba2", "layers_block_type", json!(vec![mamba; 5]), "has 5 entries, one for each of 4 layers"),
        ("zamba2", "layers_block_type", json!([mamba, "hybird", mamba, mamba]), "layer 1: `hybird` is not known"),
        ("qwen3next", "layer_types", json!(vec![mamba; 9]), "has 9 entries, one for each of 3 layers"),
        ("qwen3next", "layer_types", json!([mamba, "attention", mamba]), "layer 1: `attention` is not known"),
        (
            "nemotron-h",
            "layers_block_type",
            json!([mamba, "mlp", "conv", "mlp", mamba]),
            "layer 2: `conv` is not known",
        ),
    ];
    for (fixture, key, value, wanted) in cases {
        let error = message(read_changed(fixture, |c| c[key] = value.clone()));
        assert!(error.contains(wanted) && error.contains(key), "{fixture}: {key} = {value}: {error}");
    }
    let read_pattern = |letters: &str| {
        read_changed("nemotron-h", |c| {
            c["layers_block_type"] = Value::Null;
            c["num_hidden_layers"] = json!(5);
            c["hybrid_override_pattern"] = json!(letters);
        })
    };
    let pattern = |letters: &str| message(read_pattern(letters));
    // The pattern decides how many layers there are, as in transformers; a count that differs is warned about.
    assert_eq!(read_pattern("M-*-").expect("a model").layers.len(), 4);
    assert!(pattern("M-?-M").contains("layer 2: `?` is not known"), "{}", pattern("M-?-M"));
    assert!(pattern("MMMMM").contains("backbone.layers.1.mixer.in_proj.weight"), "{}", pattern("MMMMM"));
    assert!(pattern("M-*EM").contains("backbone.layers.3.mixer.gate.weight"), "{}", pattern("M-*EM"));
}

#[test]
fn gguf_lists() {
    let counts = |list: &[u32]| Some(GgufValue::Array(Array::U32(list.to_vec())));
    let switches = |list: &[bool]| Some(GgufValue::Array(Array::Bool(list.to_vec())));
    let words = Some(GgufValue::String("many".into()));
    let kv = "attention.head_count_kv";
    let cases = [
        ("jamba", kv, counts(&[0, 2, 0]), "has 3 entries, one for each of 4 layers"),
        ("jamba", kv, counts(&[0, 0, 3, 0]), "4 query heads do not divide by 3 key heads"),
        ("jamba", kv, counts(&[0, 3, 4, 0]), "layer 1: 4 query heads do not divide by 3 key heads"),
        ("jamba", kv, counts(&[0, 0, 2, 2]), "blk.3.attn_q.weight"),
        ("jamba", kv, words.clone(), "is not a whole number"),
        ("jamba", "ssm.inner_size", None, "is missing"),
        ("jamba", "ssm.time_step_rank", Some(GgufValue::U32(0)), "is 0"),
        ("mamba2-g2", "ssm.group_count", Some(GgufValue::U32(3)), "8 heads do not divide by 3 groups"),
        ("mamba2-g2", "ssm.group_count", None, "is missing"),
        ("mamba2-g2", "ssm.time_step_rank", Some(GgufValue::U32(7)), "a width of 64 does not divide by 7"),
        ("nemotron_h", "feed_forward_length", counts(&[0, 48, 0, 48]), "has 4 entries, one for each of 5 layers"),
        ("nemotron_h", "feed_forward_length", counts(&[0, 48, 0, 47, 0]), "[48, 32] where [47, 32]"),
        ("qwen3next", "attention.recurrent_layers", switches(&[true]), "has 1 entries, one for each of 3 layers"),
        ("qwen3next", "attention.recurrent_layers", words, "is not a list of switches"),
        ("qwen3next", "ssm.inner_size", Some(GgufValue::U32(33)), "a width of 33 does not divide by 4"),
    ];
    for (architecture, key, value, wanted) in cases {
        let fixture = architecture.replace('_', "-");
        let full = format!("{}.{key}", architecture.split("-g").next().expect("a name"));
        let error = message(read_with_key(&fixture, &full, value.clone()));
        assert!(error.contains(wanted), "{architecture}: {key} = {value:?}: {error}");
        assert!(error.contains(&full) || error.contains("tensor"), "{architecture}: {key} = {value:?}: {error}");
    }
}

#[test]
fn missing_tensors_are_named() {
    let without = |checkpoint: Checkpoint, config: Option<&Value>, name: &str| {
        let rest: Vec<TensorInfo> = checkpoint.tensors().iter().filter(|t| t.name != name).cloned().collect();
        assert_eq!(rest.len() + 1, checkpoint.tensors().len(), "{name} is not there in the first place");
        let mut fewer = Checkpoint::from_parts(checkpoint.sources.clone(), rest).expect("a checkpoint");
        fewer.gguf = checkpoint.gguf;
        message(families::read(&fewer, config))
    };
    let cases = [
        ("mamba", "backbone.embeddings.weight"),
        ("mamba", "backbone.layers.1.mixer.A_log"),
        ("mamba", "backbone.layers.1.mixer.x_proj.weight"),
        ("mamba2-g1", "backbone.layers.2.mixer.dt_bias"),
        ("mamba2-g1", "backbone.norm_f.weight"),
        ("ssm-mamba3-mimo", "backbone.layers.1.mixer.mimo_z"),
        ("ssm-mamba3-mimo", "backbone.layers.0.mixer.B_norm.weight"),
        ("jamba", "model.layers.1.mamba.c_layernorm.weight"),
        ("jamba", "model.layers.3.feed_forward.experts.2.up_proj.weight"),
        ("bamba", "model.layers.1.self_attn.o_proj.weight"),
        ("lfm2", "model.layers.0.conv.conv.weight"),
        ("falcon-h1", "model.layers.1.mamba.D"),
        ("nemotron-h", "backbone.layers.3.mixer.up_proj.weight"),
        ("zamba2", "model.layers.1.shared_transformer.self_attn.k_proj.weight"),
        ("zamba2", "model.layers.1.shared_transformer.feed_forward.gate_up_proj_adapter_list.1.0.weight"),
        ("zamba2", "model.layers.3.linear.weight"),
        ("qwen3next", "model.layers.2.linear_attn.in_proj_ba.weight"),
    ];
    for (fixture, name) in cases {
        let (checkpoint, config) = safetensors(fixture);
        let error = without(checkpoint, Some(&config), name);
        let wanted = name.replace("backbone.embeddings", "model.embeddings").replace(".mamba_decoder", "");
        assert_eq!(error, format!("tensor `{wanted}` is missing"), "{fixture}");
    }
    for (fixture, name) in
        [("mamba", "blk.0.ssm_a"), ("mamba2-g2", "blk.2.ssm_dt.bias"), ("lfm2", "blk.0.shortconv.conv.weight")]
    {
        assert_eq!(without(gguf(fixture), None, name), format!("tensor `{name}` is missing"), "{fixture}");
    }
}

/// The checkpoint with other names for its tensors.
fn renamed(checkpoint: &Checkpoint, name: impl Fn(&str) -> String) -> Checkpoint {
    let tensors = checkpoint.tensors().iter().map(|t| TensorInfo { name: name(&t.name), ..t.clone() }).collect();
    Checkpoint::from_parts(checkpoint.sources.clone(), tensors).expect("a checkpoint")
}

/// Other spellings of names give the same model: Codestral's leading `model.`, a singular, a home of shared tensors.
#[test]
fn other_spellings() {
    let same = |fixture: &str, name: &dyn Fn(&str) -> String| {
        let (checkpoint, config) = safetensors(fixture);
        let other = renamed(&checkpoint, name);
        assert!(checkpoint.tensors().iter().any(|t| other.get(&t.name).is_none()), "{fixture}: nothing was renamed");
        let (a, b) = (families::read(&checkpoint, Some(&config)), families::read(&other, Some(&config)));
        let (a, b) = (logits(a.expect("a model"), &checkpoint), logits(b.expect("a model"), &other));
        assert_eq!(a, b, "{fixture}");
    };
    same("mamba2-g2", &|name| format!("model.{name}"));
    same("mamba2-g2", &|name| name.replace("embeddings", "embedding"));
    same("nemotron-h", &|name| name.replace("backbone", "model"));
    same("qwen3next", &|name| name.replace("model.", "model.language_model."));
    same("zamba2", &|name| name.replace("layers.1.shared", "layers.3.shared"));
}

/// What configurations may leave out means what it always meant.
#[test]
fn defaults() {
    let without = |fixture: &str, keys: &[&str]| {
        let (checkpoint, config) = safetensors(fixture);
        let mut less = config.clone();
        for key in keys {
            let (parent, name) = key.rsplit_once('.').unwrap_or(("", *key));
            let parent = if parent.is_empty() { &mut less } else { &mut less[parent] };
            assert!(parent.as_object_mut().expect("an object").remove(name).is_some(), "{fixture}: {key}");
        }
        let (a, b) = (families::read(&checkpoint, Some(&config)), families::read(&checkpoint, Some(&less)));
        assert_eq!(
            logits(a.expect("a model"), &checkpoint),
            logits(b.expect("a model"), &checkpoint),
            "{fixture}: {keys:?}"
        );
    };
    without("mamba", &["intermediate_size", "conv_kernel", "tie_word_embeddings"]);
    without("mamba2-g2", &["time_step_limit", "conv_kernel"]);
    without("bamba", &["rope_parameters.partial_rotary_factor", "mamba_d_head", "time_step_limit"]);
    without("granitemoehybrid", &["mamba_d_conv", "mamba_expand", "mamba_n_groups"]);
    without("nemotron-h", &["time_step_min", "conv_kernel"]);
    without("ssm-mamba3-siso", &["ssm_cfg.chunk_size"]);
}

/// Mamba-3 in GGUF, under our own keys.
#[test]
fn mamba3_as_gguf() {
    for fixture in ["ssm-mamba3-siso", "ssm-mamba3-mimo"] {
        let (checkpoint, config) = safetensors(fixture);
        let wanted = logits(families::read(&checkpoint, Some(&config)).expect("a model"), &checkpoint);
        let mimo = fixture.ends_with("mimo");
        let (plain, told) = (as_gguf(&checkpoint, mimo, None), as_gguf(&checkpoint, mimo, Some("heavy_tail")));
        for file in [&plain, &told] {
            assert_eq!(logits(families::read(file, None).expect("a model"), file), wanted, "{fixture}");
        }
        let other = as_gguf(&checkpoint, mimo, Some("softplus"));
        let spec = families::read(&other, None).expect("a model");
        assert!(matches!(spec.layers[0].mixer.as_ref().expect("a mixer").inner, Mixer::Mamba3(_)));
        assert_ne!(logits(spec, &other), wanted, "{fixture}: the activation made no difference");
        let error = message(families::read(&as_gguf(&checkpoint, mimo, Some("relu")), None));
        assert!(error.contains("mamba3.ssm.a_activation") && error.contains("relu"), "{error}");
    }
}

/// A fixture of Mamba-3 as a GGUF file.
fn as_gguf(checkpoint: &Checkpoint, mimo: bool, activation: Option<&str>) -> Checkpoint {
    let short = |name: &str| -> String {
        let Some((layer, rest)) = name.strip_prefix("backbone.layers.").and_then(|rest| rest.split_once('.')) else {
            return match name {
                "backbone.embedding.weight" => "token_embd.weight".into(),
                _ => "output_norm.weight".into(),
            };
        };
        let rest = match rest {
            "norm.weight" => "attn_norm.weight".to_owned(),
            "mixer.dt_bias" => "ssm_dt.bias".to_owned(),
            "mixer.in_proj.weight" => "ssm_in.weight".to_owned(),
            "mixer.out_proj.weight" => "ssm_out.weight".to_owned(),
            rest => rest.replace("mixer.", "ssm_").to_lowercase(),
        };
        format!("blk.{layer}.{rest}")
    };
    let mut metadata = Metadata::new("mamba3.gguf");
    let n_layers = checkpoint.tensors().iter().filter(|t| t.name.ends_with("in_proj.weight")).count() as u32;
    metadata.set("general.architecture", GgufValue::String("mamba3".into()));
    let counts = [
        ("block_count", n_layers),
        ("embedding_length", 32),
        ("ssm.inner_size", 64),
        ("ssm.state_size", 16),
        ("ssm.time_step_rank", 8),
        ("ssm.group_count", 1),
        ("ssm.rope_angles", 4),
    ];
    for (key, count) in counts.into_iter().chain(mimo.then_some(("ssm.mimo_rank", 2))) {
        metadata.set(format!("mamba3.{key}"), GgufValue::U32(count));
    }
    if let Some(activation) = activation {
        metadata.set("mamba3.ssm.a_activation", GgufValue::String(activation.into()));
        let pairing = if mimo { "half" } else { "interleaved" };
        metadata.set("mamba3.ssm.rope_pairing", GgufValue::String(pairing.into()));
        metadata.set("mamba3.ssm.outproj_norm", GgufValue::Bool(false));
        metadata.set("mamba3.ssm.a_floor", GgufValue::F32(1e-4));
    }
    let specs: Vec<TensorSpec> =
        checkpoint.tensors().iter().map(|t| TensorSpec { name: short(&t.name), ..TensorSpec::from(t) }).collect();
    let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), &metadata, &specs).expect("a header");
    for info in checkpoint.tensors() {
        writer.write(&pollster::block_on(checkpoint.read(info)).expect("a tensor").bytes).expect("its bytes");
    }
    let file = Rc::new(MemorySource::new("mamba3.gguf", writer.finish().expect("a file")));
    pollster::block_on(Checkpoint::open_gguf(vec![file])).expect("a checkpoint")
}
