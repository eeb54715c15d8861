//! A checkpoint's tensors under GGUF's short names, whatever the file calls them, checked against the shapes wanted.

use std::collections::HashSet;

use selkie_formats::{Checkpoint, TensorInfo};

use crate::{
    Error, Result,
    weights::{Part, Transform, Weight, WeightId, Weights},
};

/// How a family's safetensors call what GGUF calls by a short name: pairs of (GGUF, transformers).
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
];

/// The tensors of a checkpoint, and the table of weights that is being made of them.
pub(crate) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    names: Names,
    /// What stands before `layers.N.` in safetensors; `None` for GGUF.
    prefix: Option<String>,
    weights: Weights,
    used: HashSet<String>,
    swapped: Vec<String>,
}

impl<'a> Tensors<'a> {
    pub fn new(checkpoint: &'a Checkpoint, names: Names) -> Result<Self> {
        let prefix = if checkpoint.gguf.is_some() {
            None
        } else {
            // `model.` mostly, `language_model.model.` and the like where the text model is a part of several.
            let embedding = checkpoint
                .tensors()
                .iter()
                .find_map(|t| t.name.strip_suffix("embed_tokens.weight"))
                .ok_or_else(|| Error::MissingTensor("model.embed_tokens.weight".into()))?;
            Some(embedding.to_owned())
        };
        Ok(Self { checkpoint, names, prefix, weights: Weights::default(), used: HashSet::new(), swapped: vec![] })
    }

    /// The file's name for `short`, which is `blk.N.` and a name, or a name; without `.weight`.
    fn file_name(&self, short: &str) -> String {
        let Some(prefix) = &self.prefix else { return short.to_owned() };
        let (layer, stem) = match short.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((n, stem)) => (format!("{prefix}layers.{n}."), stem),
            None => (prefix.clone(), short),
        };
        if stem == "output" {
            // The head stands beside the model, not in it.
            return format!("{}lm_head", prefix.strip_suffix("model.").unwrap_or(prefix));
        }
        let translate = |stem: &str| self.names.iter().chain(COMMON).find(|(gguf, _)| *gguf == stem).map(|(_, hf)| *hf);
        // One of many: `ffn_gate.3` is looked up as `ffn_gate.#`.
        if let Some((many, number)) = stem.rsplit_once('.').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()))
            && let Some(hf) = translate(&format!("{many}.#"))
        {
            return format!("{layer}{}", hf.replace('#', number));
        }
        format!("{layer}{}", translate(stem).unwrap_or(stem))
    }

    /// Whether the file has `short`, which ends in `.weight` or `.bias`.
    pub fn has(&self, short: &str) -> bool {
        self.find(short).is_some()
    }

    /// The stored tensor `short`, as recorded.
    pub fn find(&self, short: &str) -> Option<&'a TensorInfo> {
        let (stem, suffix) = short.rsplit_once('.')?;
        self.checkpoint.get(&format!("{}.{suffix}", self.file_name(stem)))
    }

    /// The stored tensor `short`, or an error that says what the file should call it.
    pub fn require(&self, short: &str) -> Result<&'a TensorInfo> {
        self.find(short).ok_or_else(|| {
            let (stem, suffix) = short.rsplit_once('.').unwrap_or((short, "weight"));
            Error::MissingTensor(format!("{}.{suffix}", self.file_name(stem)))
        })
    }

    /// A weight that is a whole tensor of `shape`.
    pub fn weight(&mut self, short: &str, shape: &[usize]) -> Result<WeightId> {
        let info = self.require(short)?;
        let part = self.part(info, shape, None)?;
        Ok(self.push(shape, vec![part], Transform::None))
    }

    /// A weight that is a whole tensor of `shape`, changed on the way in.
    pub fn transformed(&mut self, short: &str, shape: &[usize], transform: Transform) -> Result<WeightId> {
        let info = self.require(short)?;
        let part = self.part(info, shape, None)?;
        Ok(self.push(shape, vec![part], transform))
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
        Ok(self.push(&own, vec![part], Transform::None))
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
        Ok(self.push(&shape, parts, Transform::None))
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
