//! A checkpoint's tensors under GGUF's short names, whatever the file calls them, checked against the shapes wanted.

use std::{collections::HashSet, rc::Rc};

use selkie_formats::{Checkpoint, TensorInfo};

use super::export::Record;
use crate::{
    Error, Result,
    weights::{Part, Transform, Weight, WeightId, Weights},
};

/// How a family's safetensors call what GGUF calls by a short name: pairs of (GGUF, transformers). Names stand for both the
/// `.weight` and the `.bias`, or end in one of them. Where a name has several lines, the first that the file has counts.
pub(crate) type Names = &'static [(&'static str, &'static str)];

/// Names that most decoders share. A family's own names are looked up first.
const COMMON: Names = &[
    ("token_embd", "embed_tokens"),
    ("output_norm", "norm"),
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate.#", "mlp.experts.#.gate_proj"),
    ("ffn_up.#", "mlp.experts.#.up_proj"),
    ("ffn_down.#", "mlp.experts.#.down_proj"),
    ("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    ("ffn_down_exps.weight", "mlp.experts.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Every translation of `name` in the first table that has any.
fn translations(names: [Names; 2], name: &str) -> Vec<&'static str> {
    let of = |names: Names| -> Vec<&'static str> {
        names.iter().filter(|(gguf, _)| *gguf == name).map(|(_, hf)| *hf).collect()
    };
    names.into_iter().chain([COMMON]).map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The tensors of a checkpoint, and the table of weights that is being made of them.
pub(crate) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    /// The family's, and those that it shares with others of its kind.
    names: [Names; 2],
    /// What stands before `layers.N.` in safetensors; `None` for GGUF.
    prefix: Option<String>,
    weights: Weights,
    used: HashSet<String>,
    swapped: Vec<String>,
    /// Where it is noted what is asked for.
    record: Option<Rc<Record>>,
}

impl<'a> Tensors<'a> {
    pub fn new(checkpoint: &'a Checkpoint, names: [Names; 2], record: Option<Rc<Record>>) -> Result<Self> {
        let prefix = if checkpoint.gguf.is_some() {
            None
        } else {
            // `model.` mostly, `language_model.model.` and the like where the text model is a part of several.
            let embeddings = translations(names, "token_embd");
            let is_place = |before: &&str| before.is_empty() || before.ends_with('.');
            let prefix = checkpoint.tensors().iter().find_map(|t| {
                let stem = t.name.strip_suffix(".weight")?;
                embeddings.iter().find_map(|name| stem.strip_suffix(name)).filter(is_place)
            });
            // Of two tied matrices the file may have only the head: then the layers tell.
            let headed = || checkpoint.tensors().iter().any(|t| t.name.ends_with("lm_head.weight"));
            let first_layers =
                || checkpoint.tensors().iter().find_map(|t| Some(&t.name[..t.name.find("layers.")?]).filter(is_place));
            let prefix = prefix.or_else(|| headed().then(first_layers).flatten());
            let missing = || Error::MissingTensor(format!("model.{}.weight", embeddings[0]));
            Some(prefix.ok_or_else(missing)?.to_owned())
        };
        let (weights, used) = (Weights::default(), HashSet::new());
        Ok(Self { checkpoint, names, prefix, weights, used, swapped: vec![], record })
    }

    /// What the file may call `short`, which is a name, or `blk.N.` and a name; the likeliest first.
    fn candidates(&self, short: &str) -> Vec<String> {
        let Some(prefix) = &self.prefix else {
            // Some converters left the ending off, or called LFM2's last norm after its first.
            let bare = short.strip_suffix(".weight").map(str::to_owned);
            let old = (short == "output_norm.weight").then(|| "token_embd_norm.weight".to_owned());
            return [short.to_owned()].into_iter().chain(old).chain(bare).collect();
        };
        let (place, name) = match short.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((n, name)) => (format!("{prefix}layers.{n}."), name),
            None => (prefix.clone(), short),
        };
        if let Some(suffix) = name.strip_prefix("output.") {
            // The head stands beside the model, not in it; only where there is no such tensor is it looked for further out.
            let around = prefix.match_indices('.').map(|(at, _)| &prefix[..=at]).rev().skip(1);
            return around.chain(["", prefix]).map(|place| format!("{place}lm_head.{suffix}")).collect();
        }
        // A whole name may be another's whole name: `ssm_dt.bias` is `dt_bias` in Mamba-2.
        let whole = translations(self.names, name);
        if !whole.is_empty() {
            return whole.iter().map(|hf| format!("{place}{hf}")).collect();
        }
        let (stem, suffix) = match name.rsplit_once('.') {
            Some((stem, suffix @ ("weight" | "bias"))) => (stem, format!(".{suffix}")),
            _ => (name, String::new()),
        };
        // One of many: `ffn_gate.3` is looked up as `ffn_gate.#`.
        if let Some((many, number)) = stem.rsplit_once('.').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())) {
            let many = translations(self.names, &format!("{many}.#"));
            if !many.is_empty() {
                return many.iter().map(|hf| format!("{place}{}{suffix}", hf.replace('#', number))).collect();
            }
        }
        match translations(self.names, stem) {
            found if found.is_empty() => vec![format!("{place}{name}")],
            found => found.iter().map(|hf| format!("{place}{hf}{suffix}")).collect(),
        }
    }

    /// Whether the file has `short`.
    pub fn has(&self, short: &str) -> bool {
        self.find(short).is_some()
    }

    /// The stored tensor `short`, as recorded.
    pub fn find(&self, short: &str) -> Option<&'a TensorInfo> {
        self.candidates(short).iter().find_map(|name| self.checkpoint.get(name))
    }

    /// The stored tensor `short`, or an error that says what the file should call it.
    pub fn require(&self, short: &str) -> Result<&'a TensorInfo> {
        self.find(short).ok_or_else(|| Error::MissingTensor(self.candidates(short).swap_remove(0)))
    }

    /// A weight that is a whole tensor of `shape`.
    pub fn weight(&mut self, short: &str, shape: &[usize]) -> Result<WeightId> {
        let info = self.require(short)?;
        let part = self.part(info, shape, None)?;
        Ok(self.push_as(short, shape, vec![part], Transform::None))
    }

    /// A weight that is a whole tensor of `shape`, changed on the way in.
    pub fn transformed(&mut self, short: &str, shape: &[usize], transform: Transform) -> Result<WeightId> {
        let info = self.require(short)?;
        let part = self.part(info, shape, None)?;
        Ok(self.push_as(short, shape, vec![part], transform))
    }

    /// As [`weight`](Self::weight), where the file has it.
    pub fn optional(&mut self, short: &str, shape: &[usize]) -> Result<Option<WeightId>> {
        if self.has(short) { self.weight(short, shape).map(Some) } else { Ok(None) }
    }

    /// Rows `rows` of a matrix of `shape`, or those values of a list, as a weight of its own.
    pub fn rows(&mut self, short: &str, shape: &[usize], rows: std::ops::Range<usize>) -> Result<WeightId> {
        let info = self.require(short)?;
        let mut own = shape.to_vec();
        own[0] = rows.len();
        let part = self.part(info, shape, Some(rows))?;
        self.note_whole(short, info, shape)?;
        Ok(self.push(&own, vec![part], Transform::None))
    }

    /// Rows of a matrix of `shape`, or values of a list, taken from several places and put one after another.
    pub fn gather(&mut self, short: &str, shape: &[usize], ranges: &[std::ops::Range<usize>]) -> Result<WeightId> {
        let mut own = shape.to_vec();
        own[0] = ranges.iter().map(|range| range.len()).sum();
        let info = self.require(short)?;
        self.note_whole(short, info, shape)?;
        self.pick(short, shape, ranges, &own, Transform::None)
    }

    /// Rows of a tensor `stored`, all its axes but the last taken together, one range after another as a weight of `shape`.
    pub fn pick(
        &mut self,
        short: &str,
        stored: &[usize],
        rows: &[std::ops::Range<usize>],
        shape: &[usize],
        transform: Transform,
    ) -> Result<WeightId> {
        let info = self.require(short)?;
        let parts = rows.iter().map(|rows| self.part(info, stored, Some(rows.clone()))).collect::<Result<_>>()?;
        Ok(self.push(shape, parts, transform))
    }

    /// Whole tensors, each with its stored shape, which `transform` makes one weight of.
    pub fn join(&mut self, tensors: &[(&str, Vec<usize>)], shape: &[usize], transform: Transform) -> Result<WeightId> {
        let mut parts = Vec::with_capacity(tensors.len());
        for (short, stored) in tensors {
            let info = self.require(short)?;
            parts.push(self.part(info, stored, None)?);
        }
        Ok(self.push(shape, parts, transform))
    }

    /// A list which may be stored as a matrix of `rows` rows, as GGUF's norms of groups are.
    pub fn list(&mut self, short: &str, len: usize, rows: usize) -> Result<WeightId> {
        let info = self.require(short)?;
        let part = match info.shape.len() {
            2 => self.part(info, &[rows, len / rows.max(1)], None)?,
            _ => self.part(info, &[len], None)?,
        };
        if let Some(record) = &self.record {
            let shape = vec![rows, len / rows.max(1)];
            let (name, parts) = (info.name.clone(), vec![part.clone()]);
            record.tensor(short, &Weight { name, shape, parts, transform: Transform::None }, false);
        }
        Ok(self.push(&[len], vec![part], Transform::None))
    }

    /// A stack of matrices `[n, out, in]`: one tensor, or `n` whose names `each` gives.
    pub fn stack(&mut self, short: &str, shape: [usize; 3], each: impl Fn(usize) -> String) -> Result<WeightId> {
        if self.has(short) {
            return self.weight(short, &shape);
        }
        let mut parts = Vec::with_capacity(shape[0]);
        for expert in 0..shape[0] {
            let info = self.require(&each(expert))?;
            parts.push(self.part(info, &shape[1..], None)?);
        }
        Ok(self.push_as(short, &shape, parts, Transform::None))
    }

    /// Notes that a weight is what GGUF files have under the name `short`, whatever it was made of.
    pub fn note(&self, short: &str, weight: WeightId) {
        if let Some(record) = &self.record {
            record.tensor(short, self.weights.get(weight), true);
        }
    }

    /// The same of a whole tensor, of which rows are taken.
    fn note_whole(&mut self, short: &str, info: &TensorInfo, shape: &[usize]) -> Result<()> {
        let Some(record) = self.record.clone() else { return Ok(()) };
        let part = self.part(info, shape, None)?;
        let (name, shape) = (info.name.clone(), shape.to_vec());
        record.tensor(short, &Weight { name, shape, parts: vec![part], transform: Transform::None }, false);
        Ok(())
    }

    fn push_as(&mut self, short: &str, shape: &[usize], parts: Vec<Part>, transform: Transform) -> WeightId {
        let id = self.push(shape, parts, transform);
        if let Some(record) = &self.record {
            record.tensor(short, self.weights.get(id), false);
        }
        id
    }

    fn push(&mut self, shape: &[usize], parts: Vec<Part>, transform: Transform) -> WeightId {
        let name = parts[0].tensor.name.clone();
        self.weights.push(Weight { name, shape: shape.to_vec(), parts, transform })
    }

    fn part(&mut self, info: &TensorInfo, wanted: &[usize], rows: Option<std::ops::Range<usize>>) -> Result<Part> {
        self.used.insert(info.name.clone());
        let mut tensor = info.clone();
        // Axes of one, as a depthwise convolution's middle axis, say nothing.
        let squeezed = |shape: &[usize]| -> Vec<usize> { shape.iter().copied().filter(|&n| n != 1).collect() };
        if tensor.shape != wanted && squeezed(&tensor.shape) == squeezed(wanted) {
            tensor.shape = wanted.to_vec();
        }
        if tensor.shape != wanted {
            let mut reversed = tensor.shape.clone();
            reversed.reverse();
            // Older writers recorded a matrix's sizes the other way round; its bytes are [out][in] all the same.
            let swapped = self.prefix.is_none() && wanted.len() == 2 && reversed == wanted;
            if !swapped {
                return Err(Error::Shape {
                    tensor: info.name.clone(),
                    found: info.shape.clone(),
                    wanted: wanted.to_vec(),
                });
            }
            self.swapped.push(info.name.clone());
            tensor.shape = wanted.to_vec();
        }
        let mut row_len = wanted.last().copied().unwrap_or(0);
        if wanted.len() == 1 && rows.is_some() {
            row_len = 1;
        }
        let all = wanted.iter().product::<usize>() / row_len.max(1);
        if tensor.dtype.row_bytes(row_len).is_none_or(|b| (b as u64) * all as u64 != info.range.end - info.range.start)
        {
            let what = format!("{} cannot hold rows of {row_len} values", info.dtype);
            return Err(Error::Tensor { tensor: info.name.clone(), what });
        }
        Ok(Part { tensor, rows: rows.unwrap_or(0..all), row_len })
    }

    /// The table, once every weight is in it; says what is odd about the file.
    pub fn finish(self) -> Weights {
        if let Some(first) = self.swapped.first() {
            let n = self.swapped.len();
            tracing::warn!("{n} matrices (`{first}` first) record their sizes swapped; taken as [out, in]");
        }
        let unused: Vec<&str> = self
            .checkpoint
            .tensors()
            .iter()
            .map(|t| t.name.as_str())
            .filter(|name| !self.used.contains(*name) && !name.ends_with("rotary_emb.inv_freq"))
            .collect();
        if let Some(first) = unused.first() {
            tracing::warn!("{} tensors (`{first}` first) are not used by this model", unused.len());
        }
        self.weights
    }
}
