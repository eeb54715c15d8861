//! From safetensors' form to GGUF's.
//!
//! A family's reader asks for tensors and settings by their GGUF names in either format. While it reads a checkpoint of
//! safetensors, a [`Record`] notes what it asked for and what it was given: that is the GGUF file, but for what a reader of
//! configurations computes itself, which is taken from the schedule. At the end the result is read as the file that it will
//! be, and has to give the same schedule: what GGUF cannot express is refused.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use selkie_formats::{
    ByteSource, Checkpoint, DType, LocalFuture, TensorInfo,
    gguf::{Array, Metadata, Value as GgufValue},
};
use serde_json::Value;

use super::{Family, family, settings::Settings};
use crate::{
    Error, LoadedWeights, ModelSpec, Result,
    rope::{Factors, Pairing, RopeScaling, RopeSpec, yarn_mscale},
    spec::Mixer,
    weights::{Transform, Weight},
};

/// Parts of names that only some GGUF architectures have: architecture, our name, theirs.
const RENAMED: &[(&str, &str, &str)] = &[
    ("gpt-oss", ".ffn_norm.", ".post_attention_norm."),
    ("lfm2", "output_norm.", "token_embd_norm."),
    ("lfm2moe", "output_norm.", "token_embd_norm."),
];

/// A model as a GGUF file.
#[derive(Clone, Debug)]
pub struct GgufModel {
    /// Settings; nothing of the tokenizer.
    pub metadata: Metadata,
    /// The tensors, in their order.
    pub tensors: Vec<GgufTensor>,
    /// Rows of the embedding.
    pub vocab_size: usize,
}

/// A tensor of a GGUF file that is to be written.
#[derive(Clone, Debug)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// Where its values come from.
    pub values: GgufValues,
}

/// Where the values of a tensor come from.
#[derive(Clone, Debug)]
pub enum GgufValues {
    /// From tensors of the checkpoint.
    Stored(Weight),
    /// From settings.
    Made(Vec<f32>),
}

/// What a reader asked for.
#[derive(Default)]
pub(super) struct Record {
    keys: RefCell<Vec<(String, GgufValue)>>,
    tensors: RefCell<Vec<(String, Weight)>>,
    /// How pairs of channels lie in GGUF files of the family, where heads turn.
    pairing: Cell<Option<Pairing>>,
}

impl Record {
    /// Notes a setting under its first spelling.
    pub fn key(&self, gguf: &str, value: GgufValue) {
        let key = gguf.split('|').next().unwrap_or_default();
        let mut keys = self.keys.borrow_mut();
        if !key.is_empty() && !keys.iter().any(|(known, _)| known == key) {
            keys.push((key.to_owned(), value));
        }
    }

    /// Notes a tensor; `over` another that has been noted under its name.
    pub fn tensor(&self, short: &str, weight: &Weight, over: bool) {
        let mut tensors = self.tensors.borrow_mut();
        match tensors.iter_mut().find(|(known, _)| known == short) {
            Some((_, known)) if over => *known = weight.clone(),
            Some(_) => {}
            None => tensors.push((short.to_owned(), weight.clone())),
        }
    }

    /// Notes how GGUF files of the family pair channels.
    pub fn pairing(&self, pairing: Pairing) {
        self.pairing.set(Some(pairing));
    }
}

/// The GGUF form of a checkpoint of safetensors.
///
/// # Errors
/// As [`read`](super::read); where the family has no GGUF form that is known here, or that form cannot express the model.
pub fn to_gguf(checkpoint: &Checkpoint, config: Option<&Value>) -> Result<GgufModel> {
    let record = Rc::new(Record::default());
    let settings = Settings::new(checkpoint, config)?.recorded(record.clone());
    let family = family(&settings)?;
    let (named, spec) = (settings.architecture().to_owned(), (family.read)(settings, checkpoint)?);
    let architecture = architecture(family, &named, &spec)?;
    let mut keys = record.keys.take();
    from_schedule(&spec, &mut keys)?;
    let per_head = spec.layers.iter().flat_map(|layer| &layer.mixer).any(|b| matches!(b.inner, Mixer::Mamba2(_)));
    let tensor = |(mut name, weight): (String, Weight)| {
        for (_, ours, theirs) in RENAMED.iter().filter(|(of, ..)| *of == architecture) {
            name = name.replace(ours, theirs);
        }
        let mut shape = weight.shape.clone();
        // Readers of GGUF want the lists of Mamba-2's heads as columns.
        if per_head && shape.len() == 1 && (name.ends_with(".ssm_a") || name.ends_with(".ssm_d")) {
            shape.push(1);
        }
        GgufTensor { name, shape, values: GgufValues::Stored(weight) }
    };
    let mut tensors: Vec<GgufTensor> = record.tensors.take().into_iter().map(tensor).collect();
    let pairing = record.pairing.get();
    if pairing == Some(Pairing::Interleaved) {
        pair_rows(&mut tensors, &spec)?;
    }
    rotary(&spec, architecture, &mut keys, &mut tensors)?;
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", GgufValue::String(architecture.to_owned()));
    for (key, value) in keys {
        metadata.set(format!("{architecture}.{key}"), value);
    }
    let model = GgufModel { metadata, tensors, vocab_size: spec.vocab_size };
    check(&model, &spec)?;
    Ok(model)
}

/// What GGUF calls the architecture.
fn architecture(family: &Family, named: &str, spec: &ModelSpec) -> Result<&'static str> {
    let slides = |mixer: &Mixer| matches!(mixer, Mixer::Attention(a) if a.window.is_some());
    if named == "mistral" && !spec.layers.iter().flat_map(|layer| &layer.mixer).any(|block| slides(&block.inner)) {
        // Without a window, it is that in every respect, and other readers know it.
        return Ok("llama");
    }
    // What state-spaces call none of their models, GGUF names by their layers.
    let all = |kind: fn(&Mixer) -> bool| {
        spec.layers.iter().all(|l| l.feed_forward.is_none() && l.mixer.as_ref().is_some_and(|b| kind(&b.inner)))
    };
    // Where a family has several names, they go in pairs.
    let at = family.model_types.iter().position(|name| *name == named).unwrap_or(0);
    match family.gguf.get(at).or(family.gguf.first()) {
        Some(name) => Ok(name),
        None if all(|mixer| matches!(mixer, Mixer::Mamba1(_))) => Ok("mamba"),
        None if all(|mixer| matches!(mixer, Mixer::Mamba2(_))) => Ok("mamba2"),
        None => Err(cannot(format!("the architecture `{named}`"))),
    }
}

fn cannot(what: String) -> Error {
    Error::setting("model_type", format!("GGUF cannot express {what}, as far as it is known here"))
}

/// Keys for what a reader of configurations computes from other fields.
fn from_schedule(spec: &ModelSpec, keys: &mut Vec<(String, GgufValue)>) -> Result<()> {
    let mut set = |key: &str, value: GgufValue, over: bool| match keys.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) if over => *known = value,
        Some(_) => {}
        None => keys.push((key.to_owned(), value)),
    };
    let count = |n: usize| GgufValue::U32(n as u32);
    set("vocab_size", count(spec.vocab_size), false);
    set("block_count", count(spec.layers.len()), false);
    // Recurrent models are not made for any length, but readers want one.
    set("context_length", count(spec.context.unwrap_or(1 << 20)), false);
    let rows = |id| spec.weights.get(id).rows();
    let mut kv_heads = vec![];
    for layer in &spec.layers {
        let mut heads = 0;
        match layer.mixer.as_ref().map(|block| &block.inner) {
            Some(Mixer::Attention(a)) => {
                heads = a.n_kv_heads;
                set("attention.head_count", count(a.n_heads), false);
                set("attention.key_length", count(a.head_dim), false);
                set("attention.value_length", count(a.head_dim), false);
            }
            Some(Mixer::Mamba1(m)) => {
                set("ssm.inner_size", count(rows(m.x.weight)), false);
                set("ssm.state_size", count(rows(m.b.weight)), false);
                set("ssm.time_step_rank", count(rows(m.dt.weight)), false);
                set("ssm.conv_kernel", count(spec.weights.get(m.conv.weight).row_len()), false);
                let plain = m.norms.is_some_and(|norms| norms[0].weight.is_none());
                set("ssm.dt_b_c_rms", GgufValue::Bool(plain), false);
            }
            Some(Mixer::Mamba2(m)) => {
                set("ssm.inner_size", count(m.shape.d_inner()), false);
                set("ssm.state_size", count(m.shape.d_state), false);
                set("ssm.time_step_rank", count(m.shape.n_heads), false);
                set("ssm.group_count", count(m.shape.n_groups), false);
                set("ssm.conv_kernel", count(spec.weights.get(m.conv.weight).row_len()), false);
            }
            _ => {}
        }
        kv_heads.push(heads as u32);
        if let Some(mixture) = layer.feed_forward.as_ref().and_then(|block| block.inner.mixture()) {
            set("expert_count", count(mixture.n_experts), false);
            set("expert_used_count", count(mixture.n_used), false);
            set("expert_feed_forward_length", count(mixture.d_ff), false);
        }
    }
    // Some configurations call another width so.
    let wide = spec.layers.iter().any(|layer| layer.feed_forward.is_some());
    set("feed_forward_length", count(0), !wide);
    match kv_heads.first() {
        Some(&first) if kv_heads.iter().all(|&n| n == first) => {
            if first == 0 {
                set("attention.head_count", count(0), true);
            } else {
                set("attention.head_count_kv", GgufValue::U32(first), true);
            }
        }
        _ => set("attention.head_count_kv", GgufValue::Array(Array::U32(kv_heads)), true),
    }
    Ok(())
}

/// Rows of queries and keys from halves of heads to neighbours, as GGUF files of the llama kind have them.
fn pair_rows(tensors: &mut [GgufTensor], spec: &ModelSpec) -> Result<()> {
    if tensors.iter().any(|tensor| tensor.name.contains(".attn_qkv.")) {
        return Err(cannot("queries, keys and values in one tensor for this architecture".into()));
    }
    let heads = spec.layers.iter().flat_map(|layer| &layer.mixer).filter_map(|block| match &block.inner {
        Mixer::Attention(a) => Some(a.head_dim),
        _ => None,
    });
    let head_dim = heads.max().unwrap_or(0);
    if spec.ropes.iter().any(|rope| rope.n_dims != head_dim) {
        return Err(cannot("heads of which only a part turns for this architecture".into()));
    }
    for tensor in tensors {
        let GgufValues::Stored(weight) = &mut tensor.values else { continue };
        if tensor.name.contains(".attn_q.") || tensor.name.contains(".attn_k.") {
            weight.transform = Transform::PairRows { head_dim };
        }
    }
    Ok(())
}

/// Keys and tensors of the rotary embedding.
fn rotary(
    spec: &ModelSpec,
    architecture: &str,
    keys: &mut Vec<(String, GgufValue)>,
    tensors: &mut Vec<GgufTensor>,
) -> Result<()> {
    let Some(rope) = spec.ropes.first() else { return Ok(()) };
    let number = |n: f64| GgufValue::F32(n as f32);
    let mut set = |key: &str, value: GgufValue| {
        keys.retain(|(known, _)| known != key);
        keys.push((key.to_owned(), value));
    };
    let mut made = |name: &str, values: Vec<f32>| {
        tensors.push(GgufTensor { name: name.to_owned(), shape: vec![values.len()], values: GgufValues::Made(values) });
    };
    set("rope.dimension_count", GgufValue::U32(rope.n_dims as u32));
    set("rope.freq_base", number(rope.theta));
    if architecture == "granitehybrid" {
        // By this its readers know that heads turn at all.
        set("rope.scaling.finetuned", GgufValue::Bool(true));
    }
    if let Some(local) = spec.ropes.get(1) {
        set("rope.freq_base_swa", number(local.theta));
    }
    match &rope.scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => {
            set("rope.scaling.type", GgufValue::String("linear".into()));
            set("rope.scaling.factor", number(*factor));
        }
        &RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, context, .. } => {
            set("rope.scaling.type", GgufValue::String("yarn".into()));
            set("rope.scaling.factor", number(factor));
            set("rope.scaling.original_context_length", GgufValue::U32(context as u32));
            set("rope.scaling.attn_factor", number(attention_factor / yarn_mscale(factor, 1.0)));
            set("rope.scaling.yarn_beta_fast", number(beta_fast));
            set("rope.scaling.yarn_beta_slow", number(beta_slow));
        }
        RopeScaling::Llama3 { .. } => made("rope_freqs.weight", divisors(rope)?),
        RopeScaling::LongRope { short, long, attention_factor, context } => {
            let (Factors::Inline(short), Factors::Inline(long)) = (short, long) else {
                return Err(cannot("this rotary embedding".into()));
            };
            set("rope.scaling.type", GgufValue::String("longrope".into()));
            set("rope.scaling.original_context_length", GgufValue::U32(*context as u32));
            set("rope.scaling.attn_factor", number(*attention_factor));
            made("rope_factors_long.weight", long.iter().map(|&v| v as f32).collect());
            made("rope_factors_short.weight", short.iter().map(|&v| v as f32).collect());
        }
        RopeScaling::Dynamic { .. } => return Err(cannot("frequencies that change with the length".into())),
    }
    Ok(())
}

/// What a stretched embedding divides each frequency by.
fn divisors(rope: &RopeSpec) -> Result<Vec<f32>> {
    let none = LoadedWeights::from_iter([]);
    let plain = RopeSpec { scaling: RopeScaling::None, ..rope.clone() };
    let (plain, stretched) = (plain.frequencies(1, &none)?, rope.frequencies(1, &none)?);
    Ok(plain.inv_freq.iter().zip(stretched.inv_freq).map(|(plain, stretched)| (plain / stretched) as f32).collect())
}

/// A file that is not there yet.
struct Planned(u64);

impl ByteSource for Planned {
    fn name(&self) -> &str {
        "the GGUF file"
    }

    fn len(&self) -> u64 {
        self.0
    }

    fn read(&self, range: std::ops::Range<u64>) -> LocalFuture<'_, selkie_formats::Result<bytes::Bytes>> {
        let error = selkie_formats::Error::PastEnd { file: self.name().to_owned(), range, len: 0 };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Reads what will be written, and compares the schedules.
fn check(model: &GgufModel, wanted: &ModelSpec) -> Result<()> {
    let mut end = 0;
    let infos: Vec<TensorInfo> = (model.tensors.iter())
        .map(|tensor| {
            let start = end;
            end += 4 * tensor.shape.iter().product::<usize>() as u64;
            let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
            TensorInfo { name, dtype: DType::F32, shape, source: 0, range: start..end }
        })
        .collect();
    let mut checkpoint = Checkpoint::from_parts(vec![Rc::new(Planned(end))], infos)?;
    checkpoint.gguf = Some(model.metadata.clone());
    let found = super::read(&checkpoint, None).map_err(|error| cannot(format!("this model ({error})")))?;
    let (found, wanted) = (comparable(&found), comparable(wanted));
    let mut lines = found.lines().zip(wanted.lines()).filter(|(found, wanted)| found != wanted);
    match lines.next() {
        Some((found, wanted)) => {
            let what = format!("that `{}` (a reader would take `{}`)", wanted.trim(), found.trim());
            Err(cannot(what))
        }
        None if found.len() != wanted.len() => Err(cannot("all of the model's parts".into())),
        None => Ok(()),
    }
}

/// A schedule as text, without what may differ: which weights are where, and what files round.
fn comparable(spec: &ModelSpec) -> String {
    let rope = |rope: &RopeSpec| {
        let theta = f64::from(rope.theta as f32);
        let round = |n: f64| f64::from(n as f32);
        let scaling = match rope.scaling.clone() {
            // These become tensors.
            RopeScaling::Llama3 { .. } => RopeScaling::None,
            RopeScaling::LongRope { attention_factor, context, .. } => {
                let none = || Factors::Inline(vec![]);
                let attention_factor = round(attention_factor);
                RopeScaling::LongRope { short: none(), long: none(), attention_factor, context }
            }
            RopeScaling::Linear { factor } => RopeScaling::Linear { factor: round(factor) },
            RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, truncate, context } => {
                RopeScaling::Yarn {
                    factor: round(factor),
                    beta_fast: round(beta_fast),
                    beta_slow: round(beta_slow),
                    // A quotient and a product of rounded numbers.
                    attention_factor: (attention_factor * 1e5).round(),
                    truncate,
                    context,
                }
            }
            other => other,
        };
        RopeSpec { theta, pairing: Pairing::Halves, scaling, freq_factors: None, ..rope.clone() }
    };
    let spec = ModelSpec {
        architecture: String::new(),
        context: None,
        ropes: spec.ropes.iter().map(rope).collect(),
        weights: Default::default(),
        ..spec.clone()
    };
    let text = format!("{spec:#?}");
    // Ids count what was asked for, which in GGUF may be tensors of frequencies too.
    let mut lines = text.lines();
    let mut kept = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        kept.push_str(line);
        kept.push('\n');
        if line.ends_with("WeightId(") {
            lines.next();
        }
    }
    kept
}
