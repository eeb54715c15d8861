//! Configurations read as transformers 5.24 reads them: what they leave out, and what they say that few models do.

use std::{fs, rc::Rc};

use selkie_formats::{ByteSource, Checkpoint, MemorySource, TensorInfo, parse_lenient_json};
use selkie_model::{
    Error, ModelSpec, Result, families, plan,
    rope::RopeScaling,
    spec::{Activation, Attention, DecayActivation, FeedForward, Mixer, Mixture},
};
use serde_json::{Value, json};

fn safetensors(name: &str) -> (Checkpoint, Value) {
    let read = |file: &str| {
        let path = selkie_suite::fixtures().join("hf").join(name).join(file);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let config = parse_lenient_json("config.json", &read("config.json")).expect("JSON");
    let source: Rc<dyn ByteSource> = Rc::new(MemorySource::new(name, read("model.safetensors")));
    (pollster::block_on(Checkpoint::open_safetensors(vec![source], None)).expect("a checkpoint"), config)
}

/// Reads a fixture with other fields; `null` drops one, as transformers' own writer does.
fn try_with(name: &str, fields: Value) -> Result<ModelSpec> {
    let (checkpoint, config) = safetensors(name);
    families::read(&checkpoint, Some(&changed(config, fields)))
}

#[track_caller]
fn with(name: &str, fields: Value) -> ModelSpec {
    try_with(name, fields).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[track_caller]
fn message(name: &str, fields: Value) -> String {
    try_with(name, fields).expect_err("this should not be read").to_string()
}

fn changed(mut config: Value, fields: Value) -> Value {
    let own = config.as_object_mut().expect("fields");
    for (key, value) in fields.as_object().expect("fields") {
        match value {
            Value::Null => own.remove(key),
            value => own.insert(key.clone(), value.clone()),
        };
    }
    config
}

/// The same checkpoint with other tensors.
fn retold(checkpoint: &Checkpoint, tensors: impl IntoIterator<Item = TensorInfo>) -> Checkpoint {
    Checkpoint::from_parts(checkpoint.sources.clone(), tensors.into_iter().collect()).expect("a checkpoint")
}

fn attentions(spec: &ModelSpec) -> Vec<&Attention> {
    let mixers = spec.layers.iter().filter_map(|layer| layer.mixer.as_ref());
    mixers
        .filter_map(|block| match &block.inner {
            Mixer::Attention(attention) => Some(&**attention),
            _ => None,
        })
        .collect()
}

fn windows(spec: &ModelSpec) -> Vec<Option<usize>> {
    attentions(spec).iter().map(|a| a.window).collect()
}

fn mixture(spec: &ModelSpec) -> Mixture {
    let blocks = spec.layers.iter().filter_map(|layer| layer.feed_forward.as_ref());
    *blocks.filter_map(|block| block.inner.mixture()).next().expect("a mixture")
}

#[test]
fn windows_of_mixtures() {
    assert_eq!(windows(&with("mixtral", json!({}))), [None, None]);
    assert_eq!(windows(&with("mixtral", json!({"sliding_window": 5}))), [Some(5), Some(5)]);
    let slides = json!({"sliding_window": 5, "use_sliding_window": true, "max_window_layers": 1});
    assert_eq!(windows(&with("qwen3moe", slides.clone())), [Some(5), Some(5)]);
    assert_eq!(windows(&with("qwen3moe", json!({"sliding_window": 5}))), [None, None]);
    let mut own = slides;
    own["layer_types"] = Value::Null;
    assert_eq!(windows(&with("qwen2moe-shared", own.clone())), [Some(5), None]);
    own["max_window_layers"] = json!(0);
    assert_eq!(windows(&with("qwen2moe-shared", own)), [None, None]);
    // A field that is left out is not a field that is `null`.
    assert_eq!(windows(&with("mistral-swa", json!({"sliding_window": null, "layer_types": null}))), [Some(4096); 2]);
    let (checkpoint, mut config) = safetensors("mistral-swa");
    config["sliding_window"] = Value::Null;
    assert_eq!(windows(&families::read(&checkpoint, Some(&config)).expect("a model")), [None; 2]);
}

#[test]
fn classes_have_their_own_defaults() {
    let silent = || {
        json!({
            "rms_norm_eps": null, "norm_eps": null, "layer_norm_epsilon": null, "rope_parameters": null,
            "rope_scaling": null, "rope_theta": null,
        })
    };
    let cases = [
        ("llama-gqa", 1e-6, 10_000.0),
        ("mistral-swa", 1e-6, 10_000.0),
        ("mixtral", 1e-5, 1e6),
        ("lfm2", 1e-5, 1e6),
        ("smollm3-nope", 1e-6, 2e6),
        ("gptoss", 1e-5, 150_000.0),
        ("gemma3-text", 1e-6, 1e6),
        ("qwen3moe", 1e-6, 10_000.0),
        ("deepseek3-mla", 1e-6, 10_000.0),
        ("bamba", 1e-5, 10_000.0),
        ("olmo2", 1e-5, 10_000.0),
    ];
    for (name, eps, theta) in cases {
        let spec = with(name, silent());
        assert_eq!((spec.final_norm.eps, spec.ropes[0].theta), (eps, theta), "{name}");
    }
    for (name, eps) in [("jamba", 1e-6), ("granitemoehybrid", 1e-6), ("zamba2", 1e-5), ("mamba", 1e-5)] {
        assert_eq!(with(name, silent()).final_norm.eps, eps, "{name}");
    }
    assert_eq!(with("gemma3-text", silent()).ropes[1].theta, 10_000.0, "of sliding layers");
    let scaling = with("gptoss", silent()).ropes[0].scaling.clone();
    let RopeScaling::Yarn { factor, attention_factor, truncate, context, .. } = scaling else { panic!("{scaling:?}") };
    assert_eq!((factor, truncate, context), (32.0, false, 4096));
    assert!((attention_factor - (0.1 * 32f64.ln() + 1.0)).abs() < 1e-12);
}

#[test]
fn defaults_of_mixtures() {
    let used = json!({"num_experts_per_tok": null});
    for (name, n_used) in [("jamba", 2), ("granitemoe", 2), ("granitemoehybrid", 2), ("qwen2moe-shared", 4)] {
        assert_eq!(mixture(&with(name, used.clone())).n_used, n_used, "{name}");
    }
    assert!(message("qwen3moe", used).contains("8 of 6 experts"));
    let routing = mixture(&with("deepseek3-mla", json!({"routed_scaling_factor": null}))).routing;
    assert_eq!((routing.scale, routing.renormalise), (2.5, true));
    let groups = mixture(&with("deepseek3-mla", json!({"n_group": null, "topk_group": null}))).routing.groups;
    assert_eq!(groups.map(|g| (g.n_groups, g.n_used)), Some((8, 4)));
    let spec = with("deepseek2-lite", json!({"norm_topk_prob": true}));
    assert!(!mixture(&spec).routing.renormalise, "this class does not look at the field");
    let groups = |method: Value| mixture(&with("deepseek2-yarn", json!({"topk_method": method}))).routing.groups;
    assert!(groups(Value::Null).is_none(), "greedy is this class's own");
    assert_eq!(groups(json!("group_limited_greedy")).map(|g| (g.n_groups, g.n_used)), Some((4, 2)));
    let scale = |name: &str| attentions(&with(name, json!({"attention_multiplier": null})))[0].scale;
    assert_eq!(["granite", "granitemoe", "granitemoehybrid"].map(scale), [1.0; 3]);
}

/// Which part of a head turns, and how many key heads there are.
#[test]
fn defaults_of_heads() {
    for (name, divisor) in [("bamba", 2), ("qwen3next", 4), ("llama-gqa", 1)] {
        let spec = with(name, json!({"rope_parameters": null, "partial_rotary_factor": null}));
        assert_eq!(spec.ropes[0].n_dims * divisor, attentions(&spec)[0].head_dim, "{name}");
    }
    assert_eq!(attentions(&with("qwen3next", json!({"num_key_value_heads": null})))[0].n_kv_heads, 2);
}

#[test]
fn caps_of_gemma() {
    let caps = |spec: &ModelSpec| (attentions(spec)[0].softcap, spec.logit_softcap);
    let fields = json!({"attn_logit_softcapping": null, "final_logit_softcapping": null});
    assert_eq!(caps(&with("gemma2", fields)), (Some(50.0), Some(30.0)));
    let (checkpoint, mut config) = safetensors("gemma2");
    config["attn_logit_softcapping"] = Value::Null;
    config["final_logit_softcapping"] = Value::Null;
    assert_eq!(caps(&families::read(&checkpoint, Some(&config)).expect("a model")), (None, None));
    let fields = json!({"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0});
    assert_eq!(caps(&with("gemma3-text", fields)), (None, Some(4.0)), "only the logits are capped in this class");
    let scale = attentions(&with("gemma2", json!({"query_pre_attn_scalar": null})))[0].scale;
    assert_eq!(scale, 1.0 / 16.0);
}

#[test]
fn activations_of_recurrent_layers() {
    for (name, key) in [
        ("mamba", "hidden_act"),
        ("mamba2-g1", "hidden_act"),
        ("jamba", "hidden_act"),
        ("bamba", "hidden_act"),
        ("falcon-h1", "hidden_act"),
        ("granitemoehybrid", "hidden_act"),
        ("nemotron-h", "mamba_hidden_act"),
        ("qwen3next", "hidden_act"),
    ] {
        let error = message(name, json!({key: "gelu"}));
        assert!(error.contains(&format!("`{key}`")) && error.contains("silu only"), "{name}: {error}");
        with(name, json!({key: "swish"}));
    }
    // Its recurrent layers have SiLU whatever the field says, which is of the shared blocks.
    let spec = with("zamba2", json!({"hidden_act": "relu"}));
    let shared = spec.layers.iter().find_map(|layer| layer.shared.as_ref()).expect("a shared block");
    assert_eq!(shared.feed_forward.activation, Activation::Relu);
}

/// A file that has a head of its own means it, whatever the settings say.
#[test]
fn heads_and_ties() {
    let spec = with("mixtral", json!({"tie_word_embeddings": true}));
    assert_ne!(spec.head.weight, spec.embedding);
    let (checkpoint, config) = safetensors("mixtral");
    let headed = checkpoint.tensors().iter().filter(|t| t.name != "model.embed_tokens.weight").cloned();
    let headed = retold(&checkpoint, headed);
    let spec = families::read(&headed, Some(&changed(config.clone(), json!({"tie_word_embeddings": true}))));
    let spec = spec.expect("a model");
    assert_eq!(spec.head.weight, spec.embedding);
    assert_eq!(spec.weights.get(spec.embedding).name, "lm_head.weight");
    let error = families::read(&headed, Some(&config)).expect_err("no embedding").to_string();
    assert_eq!(error, "tensor `model.embed_tokens.weight` is missing");
}

/// Blocks that are not tied are each their own.
#[test]
fn blocks_of_zamba2_may_be_apart() {
    let (checkpoint, config) = safetensors("zamba2");
    let block = "layers.1.shared_transformer.";
    let more = checkpoint.tensors().iter().filter(|t| t.name.contains(block));
    // Its corrections are numbered by their use.
    let more = more.filter(|t| !t.name.contains("_list.0.")).map(|t| {
        let name = t.name.replace(block, "layers.3.shared_transformer.");
        TensorInfo { name, ..t.clone() }
    });
    let apart = retold(&checkpoint, checkpoint.tensors().iter().cloned().chain(more));
    let queries = |checkpoint: &Checkpoint| -> Vec<String> {
        let spec = families::read(checkpoint, Some(&config)).expect("a model");
        let shared = spec.layers.iter().filter_map(|layer| layer.shared.as_ref());
        shared.map(|block| spec.weights.get(block.attention.q.weight).name.clone()).collect()
    };
    let name = |layer: usize| format!("model.layers.{layer}.shared_transformer.self_attn.q_proj.weight");
    assert_eq!(queries(&checkpoint), [name(1), name(1)]);
    assert_eq!(queries(&apart), [name(1), name(3)]);
}

#[test]
fn shared_blocks_of_no_width() {
    let (checkpoint, config) = safetensors("granitemoehybrid");
    let emptied = checkpoint.tensors().iter().cloned().map(|t| {
        let axis = usize::from(t.name.ends_with("shared_mlp.output_linear.weight"));
        let mut shape = t.shape.clone();
        if !t.name.contains("shared_mlp") {
            return t;
        }
        shape[axis] = 0;
        TensorInfo { shape, range: t.range.start..t.range.start, ..t }
    });
    let spec = families::read(&retold(&checkpoint, emptied), Some(&config)).expect("a model");
    for layer in &spec.layers {
        let block = layer.feed_forward.as_ref().expect("a feed-forward part");
        assert!(matches!(block.inner, FeedForward::Mixture(_)), "{}", block.inner);
    }
}

#[test]
fn cut_queries() {
    assert_eq!(attentions(&with("olmoe", json!({})))[0].clip, None);
    let spec = with("olmoe", json!({"clip_qkv": 0.5}));
    let ops = plan::plan(&spec).print(&spec);
    for name in ["q", "k", "v"] {
        assert!(ops.contains(&format!("= clamp({name}, 0.5)")), "{ops}");
    }
    let error = message("olmoe", json!({"clip_qkv": -1.0}));
    assert!(error.contains("clip_qkv") && error.contains("-1"), "{error}");
}

#[test]
fn the_list_of_layers_wins() {
    assert_eq!(with("nemotron-h", json!({"num_hidden_layers": 7})).layers.len(), 5);
    let letters = json!({"layers_block_type": null, "hybrid_override_pattern": "M-*-M", "num_hidden_layers": 3});
    assert_eq!(with("nemotron-h", letters).layers.len(), 5);
}

#[test]
fn what_is_not_supported_is_named() {
    let (_, config) = safetensors("ssm-mamba2");
    let mut own = config["ssm_cfg"].clone();
    own["D_has_hdim"] = json!(true);
    let error = message("ssm-mamba2", json!({"ssm_cfg": own}));
    assert!(error.contains("ssm_cfg.D_has_hdim"), "{error}");
    let error = message("llama-gqa", json!({"vocab_size": 300}));
    assert!(error.contains("vocab_size") && error.contains("300") && error.contains("272 rows"), "{error}");
    assert_eq!(with("llama-gqa", json!({"vocab_size": 270})).vocab_size, 272, "a vocabulary may be padded");
    for (name, key) in
        [("llama-gqa", "tie_word_embeddings"), ("qwen3moe", "norm_topk_prob"), ("zamba2", "use_mem_rope")]
    {
        let result = try_with(name, json!({key: "yes"}));
        let Err(Error::Setting { .. }) = &result else { panic!("{key}: {result:?}") };
        let error = message(name, json!({key: "yes"}));
        assert!(error.contains(key) && error.contains("neither true nor false"), "{error}");
    }
}

#[test]
fn decays_of_mamba3() {
    let decay = |fields: Value| {
        let spec = with("ssm-mamba3-siso", fields);
        let Mixer::Mamba3(m) = &spec.layers[0].mixer.as_ref().expect("a mixer").inner else { panic!("a Mamba-3") };
        m.shape.a_activation
    };
    assert_eq!(decay(json!({})), DecayActivation::HeavyTail);
    assert_eq!(decay(json!({"a_activation": "softplus"})), DecayActivation::Softplus);
}
