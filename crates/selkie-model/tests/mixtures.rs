//! Mixtures of experts and latent attention: every way of storing them is the same model, and what cannot be is an error.

use std::{collections::BTreeMap, fs, rc::Rc};

use selkie_formats::{
    ByteSource, Checkpoint, DType, MemorySource, TensorSpec,
    gguf::{GgufOptions, GgufWriter, Metadata, Value as GgufValue},
    parse_lenient_json,
    safetensors::SafetensorsWriter,
};
use selkie_model::{
    Batch, Executor, ModelSpec, Result, Sequence, Want, WeightId, families, reference::Reference, spec::Mixture,
};
use serde_json::{Value, json};

fn read(name: &str, file: &str) -> Vec<u8> {
    let path = selkie_suite::fixtures().join("hf").join(name).join(file);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn source(name: &str, file: &str) -> Rc<dyn ByteSource> {
    Rc::new(MemorySource::new(file, read(name, file)))
}

fn safetensors(name: &str) -> (Checkpoint, Value) {
    let config = parse_lenient_json("config.json", &read(name, "config.json")).expect("JSON");
    let sources = vec![source(name, "model.safetensors")];
    (pollster::block_on(Checkpoint::open_safetensors(sources, None)).expect("a checkpoint"), config)
}

fn gguf(name: &str, file: &str) -> Checkpoint {
    pollster::block_on(Checkpoint::open_gguf(vec![source(name, file)])).expect("a checkpoint")
}

/// A tensor on its way into a file.
#[derive(Clone)]
struct Stored {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn of(checkpoint: &Checkpoint, name: &str) -> Self {
        let info = checkpoint.need(name).expect("a tensor");
        let bytes = pollster::block_on(checkpoint.read(info)).expect("a tensor").bytes.to_vec();
        Self { name: name.into(), dtype: info.dtype, shape: info.shape.clone(), bytes }
    }

    fn all(checkpoint: &Checkpoint) -> Vec<Self> {
        checkpoint.tensors().iter().map(|info| Self::of(checkpoint, &info.name)).collect()
    }

    fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    fn shaped(self, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), ..self }
    }

    /// Bytes of one index of the slowest axis.
    fn slice(&self, at: usize) -> &[u8] {
        let size = self.bytes.len() / self.shape[0];
        &self.bytes[at * size..][..size]
    }

    /// For each index of the slowest axis that of `a`, then that of `b`.
    fn alternating(a: &Self, b: &Self) -> Vec<u8> {
        (0..a.shape[0]).flat_map(|at| [a.slice(at), b.slice(at)].concat()).collect()
    }
}

fn specs(tensors: &[Stored]) -> Vec<TensorSpec> {
    let spec = |t: &Stored| TensorSpec { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() };
    tensors.iter().map(spec).collect()
}

fn as_safetensors(tensors: &[Stored]) -> Checkpoint {
    let mut writer = SafetensorsWriter::new(Vec::new(), &BTreeMap::new(), &specs(tensors)).expect("a header");
    tensors.iter().for_each(|t| writer.write(&t.bytes).expect("its bytes"));
    let file = Rc::new(MemorySource::new("rewritten.safetensors", writer.finish().expect("a file")));
    pollster::block_on(Checkpoint::open_safetensors(vec![file], None)).expect("a checkpoint")
}

fn as_gguf(metadata: &Metadata, tensors: &[Stored]) -> Checkpoint {
    let mut writer = GgufWriter::new(Vec::new(), GgufOptions::default(), metadata, &specs(tensors)).expect("a header");
    tensors.iter().for_each(|t| writer.write(&t.bytes).expect("its bytes"));
    let file = Rc::new(MemorySource::new("rewritten.gguf", writer.finish().expect("a file")));
    pollster::block_on(Checkpoint::open_gguf(vec![file])).expect("a checkpoint")
}

/// The logits of some tokens.
fn logits(checkpoint: &Checkpoint, config: Option<&Value>) -> Vec<f32> {
    let spec = families::read(checkpoint, config).unwrap_or_else(|e| panic!("{e}"));
    let weights = pollster::block_on(spec.weights.load(checkpoint)).expect("weights");
    let mut reference = Reference::<f32>::new(spec, weights);
    let mut state = pollster::block_on(reference.new_state(8)).expect("a state");
    let (ids, rows) = ([1, 5, 2, 77, 130, 3, 9, 200], [0, 1, 2, 3, 4, 5, 6, 7]);
    let batch = Batch { ids: &ids, sequences: &[Sequence { rows: 0..8 }], outputs: &rows, want: Want::Logits };
    pollster::block_on(reference.forward(&batch, &mut [&mut state])).expect("a forward pass").values
}

fn first_mixture(spec: &ModelSpec) -> Mixture {
    let mut parts = spec.layers.iter().filter_map(|layer| layer.feed_forward.as_ref());
    *parts.find_map(|block| block.inner.mixture()).expect("a mixture")
}

/// transformers 5 can write gate and up of all experts as one tensor.
#[test]
fn experts_in_one_stack() {
    let (checkpoint, config) = safetensors("qwen3moe");
    let mut tensors = Stored::all(&checkpoint);
    tensors.retain(|t| !t.name.contains(".experts."));
    for layer in 0..2 {
        let experts = format!("model.layers.{layer}.mlp.experts");
        let each = |name: &str| -> Vec<u8> {
            let of = |e: usize| Stored::of(&checkpoint, &format!("{experts}.{e}.{name}.weight")).bytes;
            (0..6).flat_map(of).collect()
        };
        let stack = |name: &str, shape: &[usize], bytes: Vec<u8>| Stored {
            name: format!("{experts}.{name}"),
            dtype: DType::BF16,
            shape: shape.to_vec(),
            bytes,
        };
        let [gate, up] = ["gate_proj", "up_proj"].map(|name| stack(name, &[6, 24, 32], each(name)));
        tensors.push(stack("gate_up_proj", &[6, 48, 32], Stored::alternating(&gate, &up)));
        tensors.push(stack("down_proj", &[6, 32, 24], each("down_proj")));
    }
    assert_eq!(logits(&as_safetensors(&tensors), Some(&config)), logits(&checkpoint, Some(&config)));
}

#[test]
fn experts_of_gguf_in_one_stack_and_one_by_one() {
    let checkpoint = gguf("qwen3moe", "model.gguf");
    let metadata = checkpoint.gguf.as_ref().expect("metadata");
    let mut others = Stored::all(&checkpoint);
    others.retain(|t| !t.name.contains("_exps."));
    let (mut fused, mut single) = (others.clone(), others);
    for layer in 0..2 {
        let stack = |name: &str| Stored::of(&checkpoint, &format!("blk.{layer}.ffn_{name}_exps.weight"));
        let (gate, up) = (stack("gate"), stack("up"));
        let both = Stored { bytes: Stored::alternating(&gate, &up), ..gate.clone() };
        fused.push(both.shaped(&[6, 48, 32]).named(format!("blk.{layer}.ffn_gate_up_exps.weight")));
        fused.push(stack("down"));
        for (name, stack) in [("gate", gate), ("up", up), ("down", stack("down"))] {
            for e in 0..6 {
                let name = format!("blk.{layer}.ffn_{name}.{e}.weight");
                let bytes = stack.slice(e).to_vec();
                single.push(Stored { name, dtype: stack.dtype, shape: stack.shape[1..].to_vec(), bytes });
            }
        }
    }
    let wanted = logits(&checkpoint, None);
    assert_eq!(logits(&as_gguf(metadata, &fused), None), wanted, "one stack");
    assert_eq!(logits(&as_gguf(metadata, &single), None), wanted, "one by one");
}

/// What transformers calls a tensor of gpt-oss that GGUF calls `name`.
fn gpt_oss_name(name: &str) -> String {
    let Some((layer, name)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
        let names = [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
        let (_, hf) = names.iter().find(|(gguf, _)| name == format!("{gguf}.weight")).expect("a name");
        return format!("{hf}.weight");
    };
    let (stem, suffix) = name.rsplit_once('.').expect("a suffix");
    let stem = match stem {
        "attn_sinks" => return format!("model.layers.{layer}.self_attn.sinks"),
        "attn_norm" => "input_layernorm",
        "post_attention_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate_inp" => "mlp.router",
        other => panic!("{other}"),
    };
    format!("model.layers.{layer}.{stem}.{suffix}")
}

/// ggml's MXFP4 blocks (value `j` and `j + 16` in byte `j`) as published models have them (`2j` and `2j + 1`): nibbles, exponents.
fn unpacked(blocks: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut nibbles, mut scales) = (vec![], vec![]);
    for block in blocks.chunks_exact(17) {
        scales.push(block[0]);
        let low: Vec<u8> = block[1..].iter().map(|b| b & 15).collect();
        let high: Vec<u8> = block[1..].iter().map(|b| b >> 4).collect();
        let values = [low, high].concat();
        nibbles.extend(values.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4));
    }
    (nibbles, scales)
}

/// The published layout of gpt-oss, made of the GGUF fixture in which experts are MXFP4.
fn published_gpt_oss(checkpoint: &Checkpoint) -> Vec<Stored> {
    let mut tensors = vec![];
    for info in checkpoint.tensors().iter().filter(|info| !info.name.contains("_exps.")) {
        let values = pollster::block_on(checkpoint.load(&info.name)).expect("a tensor").to_f32().expect("values");
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        tensors.push(Stored { name: gpt_oss_name(&info.name), dtype: DType::F32, shape: info.shape.clone(), bytes });
    }
    let (n_experts, width) = (4, 32);
    for layer in 0..2 {
        let stack = |name: &str, kind: &str| Stored::of(checkpoint, &format!("blk.{layer}.ffn_{name}_exps.{kind}"));
        // Rows of gate and up take turns.
        let rows = |name: &str| stack(name, "weight").shaped(&[n_experts * width, width]);
        let gate_up = Stored::alternating(&rows("gate"), &rows("up"));
        for (name, blocks, out) in [("gate_up", gate_up, 2 * width), ("down", rows("down").bytes, width)] {
            let (nibbles, scales) = unpacked(&blocks);
            let mut push = |kind: &str, shape: &[usize], bytes: Vec<u8>| {
                let name = format!("model.layers.{layer}.mlp.experts.{name}_proj_{kind}");
                tensors.push(Stored { name, dtype: DType::U8, shape: shape.to_vec(), bytes });
            };
            push("blocks", &[n_experts, out, width / 32, 16], nibbles);
            push("scales", &[n_experts, out, width / 32], scales);
        }
        let single = |name: &str| stack(name, "bias").shaped(&[n_experts * width]);
        let both = Stored { bytes: Stored::alternating(&single("gate"), &single("up")), ..stack("gate", "bias") };
        let experts = format!("model.layers.{layer}.mlp.experts");
        tensors.push(both.shaped(&[n_experts, 2 * width]).named(format!("{experts}.gate_up_proj_bias")));
        tensors.push(stack("down", "bias").named(format!("{experts}.down_proj_bias")));
    }
    tensors
}

/// Published MXFP4 experts become ggml's blocks, byte for byte, and nothing else.
#[test]
fn published_mxfp4() {
    let checkpoint = gguf("gptoss", "model-mxfp4_moe.gguf");
    let (_, config) = safetensors("gptoss");
    let published = as_safetensors(&published_gpt_oss(&checkpoint));
    let load = |checkpoint: &Checkpoint, config: Option<&Value>| {
        let spec = families::read(checkpoint, config).expect("a model");
        let weights = pollster::block_on(spec.weights.load(checkpoint)).expect("weights");
        (first_mixture(&spec), spec, weights)
    };
    let (of_gguf, _, wanted) = load(&checkpoint, None);
    let (mixture, spec, loaded) = load(&published, Some(&config));
    let stacks = |m: &Mixture| [m.gate.expect("a gate"), m.up, m.down];
    for (got, want) in stacks(&mixture).into_iter().zip(stacks(&of_gguf)) {
        let bytes = |weights: &selkie_model::LoadedWeights, id: WeightId| -> Vec<u8> {
            let parts = &weights.get(id).parts;
            assert!(parts.iter().all(|part| part.dtype == DType::MXFP4));
            parts.iter().flat_map(|part| part.bytes.to_vec()).collect()
        };
        let weight = spec.weights.get(got);
        assert_eq!((weight.dtype(), weight.bytes()), (DType::MXFP4, 4 * 32 * 17));
        assert_eq!(bytes(&loaded, got), bytes(&wanted, want), "{}", weight.name);
    }
    assert_eq!(logits(&published, Some(&config)), logits(&checkpoint, None));
}

/// Before llama.cpp absorbed them, keys' and values' matrices were one, as in safetensors, and heads were counted as they are.
#[test]
fn older_latent_attention_of_gguf() {
    let checkpoint = gguf("deepseek3-mla", "model.gguf");
    let (hf, config) = safetensors("deepseek3-mla");
    let mut metadata = checkpoint.gguf.clone().expect("metadata");
    for (key, value) in [("head_count_kv", 4), ("key_length", 20), ("value_length", 12)] {
        metadata.set(format!("deepseek2.attention.{key}"), GgufValue::U32(value));
        metadata.remove(&format!("deepseek2.attention.{key}_mla"));
    }
    let mut tensors = Stored::all(&checkpoint);
    tensors.retain(|t| !t.name.contains("attn_k_b") && !t.name.contains("attn_v_b"));
    for layer in 0..2 {
        let name = format!("model.layers.{layer}.self_attn.kv_b_proj.weight");
        tensors.push(Stored::of(&hf, &name).named(format!("blk.{layer}.attn_kv_b.weight")));
    }
    let wanted = logits(&checkpoint, None);
    assert_eq!(logits(&as_gguf(&metadata, &tensors), None), wanted);
    assert_eq!(logits(&hf, Some(&config)).len(), wanted.len());
}

/// The message of the error that a changed configuration must give.
#[track_caller]
fn refused(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let (checkpoint, mut config) = safetensors(name);
    change(&mut config);
    families::read(&checkpoint, Some(&config)).expect_err("this should not be read").to_string()
}

#[test]
fn senseless_settings() {
    let infinity = json!({"__float__": "Infinity"});
    let cases = [
        ("qwen3moe", "num_experts_per_tok", json!(0), "0 of 6 experts"),
        ("qwen3moe", "num_experts_per_tok", json!(7), "7 of 6 experts"),
        ("qwen3moe", "num_experts_per_tok", Value::Null, "8 of 6 experts"),
        ("qwen3moe", "num_local_experts", json!(5), "5, but `model.layers.0.mlp.gate.weight` has 6 rows"),
        ("deepseek3-mla", "n_group", json!(3), "8 experts do not divide into 3 groups"),
        ("deepseek3-mla", "topk_group", json!(5), "5 of 4 groups"),
        ("deepseek3-mla", "topk_group", json!(1), "setting `num_experts_per_tok`: 3, but only 2 experts"),
        ("deepseek3-mla", "topk_group", Value::Null, "topk_group"),
        ("deepseek3-mla", "scoring_func", json!("relu"), "softmax, sigmoid are"),
        ("deepseek3-mla", "routed_scaling_factor", json!(0), "is 0"),
        ("deepseek3-mla", "routed_scaling_factor", infinity.clone(), "is inf"),
        ("deepseek3-mla", "qk_nope_head_dim", json!(0), "is 0"),
        ("deepseek3-mla", "qk_nope_head_dim", json!(1 << 30), "out of all proportion"),
        ("deepseek3-mla", "qk_rope_head_dim", json!(7), "setting `partial_rotary_factor`: 7 channels"),
        ("deepseek3-mla", "kv_lora_rank", json!(17), "kv_a_proj_with_mqa"),
        ("deepseek3-mla", "v_head_dim", json!(11), "kv_b_proj"),
        ("deepseek3-mla", "q_lora_rank", Value::Null, "is missing"),
        ("deepseek2-yarn", "topk_method", json!("luck"), "group_limited_greedy"),
        ("gptoss", "swiglu_limit", json!(-1.0), "is -1"),
        ("olmoe", "clip_qkv", json!(-8.0), "is -8"),
    ];
    for (name, key, value, wanted) in cases {
        let error = refused(name, |c| c[key] = value.clone());
        assert!(error.contains(wanted), "{name}, {key} = {value}: {error}");
        assert!(error.contains(key) || error.contains("tensor") || wanted.contains("setting"), "{key}: {error}");
    }
    let error = refused("deepseek2-yarn", |c| c["rope_parameters"]["mscale_all_dim"] = json!(1e300));
    assert!(error.contains("mscale_all_dim"), "{error}");
    let key = "deepseek2.expert_gating_func";
    let mut checkpoint = gguf("deepseek3-mla", "model.gguf");
    checkpoint.gguf.as_mut().expect("metadata").set(key, GgufValue::U32(9));
    let error = families::read(&checkpoint, None).expect_err("no such function").to_string();
    assert!(error.contains(key) && error.contains("9 is not known"), "{error}");
}

/// What a family always has is missed, and not taken for a model without it.
#[test]
fn missing_parts_are_named() {
    let without = |checkpoint: &Checkpoint, config: Option<&Value>, name: &str| -> Result<ModelSpec> {
        let rest = checkpoint.tensors().iter().filter(|t| t.name != name).cloned().collect();
        let mut fewer = Checkpoint::from_parts(checkpoint.sources.clone(), rest).expect("a checkpoint");
        fewer.gguf = checkpoint.gguf.clone();
        families::read(&fewer, config)
    };
    for (fixture, name) in [
        ("qwen2moe-shared", "model.layers.1.mlp.shared_expert.up_proj.weight"),
        ("qwen2moe-shared", "model.layers.1.mlp.shared_expert_gate.weight"),
        ("qwen2moe-shared", "model.layers.1.self_attn.k_proj.bias"),
        ("deepseek3-mla", "model.layers.1.mlp.shared_experts.up_proj.weight"),
        ("deepseek3-mla", "model.layers.1.mlp.gate.e_score_correction_bias"),
        ("deepseek3-mla", "model.layers.0.self_attn.kv_b_proj.weight"),
        ("gptoss", "model.layers.1.self_attn.sinks"),
        ("gptoss", "model.layers.1.mlp.router.bias"),
        ("gptoss", "model.layers.1.mlp.experts.down_proj_bias"),
        ("granitemoe", "model.layers.1.block_sparse_moe.output_linear.weight"),
        ("olmoe", "model.layers.1.mlp.experts.5.down_proj.weight"),
        ("olmoe", "model.layers.1.mlp.gate.weight"),
    ] {
        let (checkpoint, config) = safetensors(fixture);
        assert!(checkpoint.get(name).is_some(), "{fixture} has no {name}");
        let error = without(&checkpoint, Some(&config), name).expect_err(name).to_string();
        assert_eq!(error, format!("tensor `{name}` is missing"), "{fixture}");
    }
    let checkpoint = gguf("gptoss", "model.gguf");
    let error = without(&checkpoint, None, "blk.1.ffn_gate_exps.bias").expect_err("a bias less").to_string();
    assert_eq!(error, "tensor `blk.1.ffn_gate_exps.bias` is missing");
}

#[test]
fn packed_experts_that_are_none() {
    let (_, config) = safetensors("gptoss");
    let whole = published_gpt_oss(&gguf("gptoss", "model-mxfp4_moe.gguf"));
    let refused = |change: &dyn Fn(&mut Stored)| {
        let mut tensors = whole.clone();
        tensors.iter_mut().for_each(change);
        families::read(&as_safetensors(&tensors), Some(&config)).expect_err("this should not be read").to_string()
    };
    let error = refused(&|t| {
        if t.name.ends_with("0.mlp.experts.down_proj_scales") {
            t.dtype = DType::I8;
        }
    });
    assert!(error.contains("down_proj_scales") && error.contains("i8"), "{error}");
    let error = refused(&|t| {
        if t.name.ends_with("0.mlp.experts.gate_up_proj_blocks") {
            t.shape = vec![4, 32, 2, 16];
        }
    });
    assert!(error.contains("gate_up_proj_blocks") && error.contains("[4, 32, 2, 16]"), "{error}");
    let error = refused(&|t| {
        if t.name.contains("0.mlp.experts.gate_up_proj_blocks") {
            t.shape = vec![4, 32, 1, 16];
            t.bytes.truncate(4 * 32 * 16);
        }
    });
    assert!(error.contains("16 values do not fill blocks of 32"), "{error}");
}
