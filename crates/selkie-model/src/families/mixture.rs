//! Mixtures of experts under GGUF's names or transformers'.
//!
//! A router has `ffn_gate_inp`, what only chooses is `exp_probs_b.bias`. Experts come one by one (`ffn_up.3`), stacked
//! (`ffn_up_exps`), gate and up in one stack (`ffn_gate_up_exps`, gate first), or as that stack's packed blocks; a block that
//! every row goes through is `ffn_up_shexp`, and the gate of that block `ffn_gate_inp_shexp`. How many experts there are and
//! how wide they are is read off the tensors, and so is whether there are biases and shared blocks: a family that always has
//! them requires them first.

use std::ops::Range;

use super::decoder::Reader;
use crate::{
    Error, Result,
    spec::{
        Activation, Dense, ExpertBiases, FeedForward, Gating, GroupScore, Groups, Linear, Mixture, Routing, Score,
        SharedMixture,
    },
    weights::{Transform, WeightId},
};
use selkie_formats::DType;

/// Values that share a scale in MXFP4 blocks.
const BLOCK: usize = 32;

/// How a family's mixtures differ.
#[derive(Clone, Copy)]
pub(crate) struct MixtureOptions {
    /// What happens between an expert's products, and a shared block's.
    pub gating: Gating,
    /// How experts are chosen; `choice_bias` is the file's.
    pub routing: Routing,
    /// Whether experts have a gate.
    pub gated: bool,
    /// Stacks lie as `[n_experts, in, out]`, and in that of gate and up the two take turns (gpt-oss).
    pub interleaved: bool,
    /// Experts a row uses where the file does not say.
    pub n_used: Option<usize>,
}

impl MixtureOptions {
    /// Experts with a gate, `[out, in]`, whose number used the file must tell.
    pub fn new(activation: Activation, routing: Routing) -> Self {
        Self { gating: Gating::Plain(activation), routing, gated: true, interleaved: false, n_used: None }
    }

    fn activation(&self) -> Activation {
        match self.gating {
            Gating::Plain(activation) => activation,
            Gating::ClampedSwiglu { .. } => Activation::Silu,
        }
    }
}

/// How the experts of a layer are stored.
enum Stored {
    OneByOne,
    Stacked,
    /// Gate and up in one stack.
    Fused,
    /// As the one before, in MXFP4 blocks with their scales beside them.
    Packed,
}

impl Reader<'_> {
    /// How the settings say that experts are chosen; as is `usual` where they do not. Of scale and groups only configurations
    /// may be silent.
    pub fn routing(&self, usual: Routing) -> Result<Routing> {
        let s = &self.settings;
        let (gguf, hf) = ("expert_gating_func", "scoring_func");
        let score = match (s.count(gguf, "")?, s.field(hf)) {
            (None | Some(0), None) => usual.score,
            (Some(1), _) => Score::Softmax,
            (Some(2), _) => Score::Sigmoid,
            (Some(3), _) => Score::SoftmaxOfChosen,
            (Some(n), _) => return Err(Error::setting(s.name(gguf, hf), format!("{n} is not known (1 to 3 are)"))),
            (None, Some(name)) => match name.as_str() {
                Some("softmax") => Score::Softmax,
                Some("sigmoid") => Score::Sigmoid,
                _ => {
                    return Err(Error::setting(
                        s.name(gguf, hf),
                        format!("{name} is not known (softmax, sigmoid are)"),
                    ));
                }
            },
        };
        let renormalise = s.switch("expert_weights_norm", "norm_topk_prob", usual.renormalise)?;
        let (gguf, hf) = ("expert_weights_scale", "routed_scaling_factor");
        // GGUF writes 0 for none.
        let default = if s.is_gguf() { 1.0 } else { usual.scale };
        let scale = match s.scale(gguf, hf, default)? {
            0.0 if s.is_gguf() => 1.0,
            scale if scale > 0.0 => scale,
            scale => return Err(Error::setting(s.name(gguf, hf), format!("is {scale}"))),
        };
        Ok(Routing { score, choice_bias: None, groups: self.groups(score, usual.groups)?, renormalise, scale })
    }

    /// The groups that experts are chosen from: DeepSeek-V2 goes by a group's best, V3, whose scores are sigmoids, by its two
    /// best.
    fn groups(&self, score: Score, usual: Option<Groups>) -> Result<Option<Groups>> {
        let s = &self.settings;
        let default = |hf: &str, n: fn(Groups) -> usize| usual.filter(|_| s.leaves_out(hf)).map_or(0, n);
        let n_groups = s.count("expert_group_count", "n_group")?.unwrap_or(default("n_group", |g| g.n_groups));
        if n_groups <= 1 {
            return Ok(None);
        }
        let n_used = s.size_or("expert_group_used_count", ("topk_group", default("topk_group", |g| g.n_used)))?;
        if n_used > n_groups {
            let key = self.settings.name("expert_group_used_count", "topk_group");
            return Err(Error::setting(key, format!("{n_used} of {n_groups} groups")));
        }
        let by = if score == Score::Sigmoid { GroupScore::BestTwo } else { GroupScore::Best };
        Ok(Some(Groups { n_groups, n_used, by }))
    }

    /// Whether layer `layer` has a router.
    pub fn has_mixture(&self, layer: usize) -> bool {
        self.tensors.has(&format!("blk.{layer}.ffn_gate_inp.weight"))
    }

    /// The mixture of layer `layer`, with its shared block where the file has one.
    pub fn mixture(&mut self, layer: usize, options: &MixtureOptions) -> Result<FeedForward> {
        let mixture = self.experts(layer, options)?;
        let Some(shared) = self.shared_block(layer, options)? else { return Ok(FeedForward::Mixture(mixture)) };
        let gate = format!("blk.{layer}.ffn_gate_inp_shexp.weight");
        let gate = self.tensors.optional(&gate, &[1, self.sizes.d_model])?.map(Linear::new);
        Ok(FeedForward::Shared(Box::new(SharedMixture { mixture, shared, gate })))
    }

    /// The block of layer `layer` that every row goes through, where the file has one.
    pub fn shared_block(&mut self, layer: usize, options: &MixtureOptions) -> Result<Option<Dense>> {
        let d_model = self.sizes.d_model;
        let at = |name: &str| format!("blk.{layer}.{name}_shexp");
        let Some(up) = self.tensors.find(&format!("{}.weight", at("ffn_up"))) else { return Ok(None) };
        // Rows of up, or of gate and up where they are one; none where a width of 0 says that there is no such block.
        let width = up.shape.iter().product::<usize>() / d_model;
        if width == 0 {
            return Ok(None);
        }
        let whole = !options.gated || self.tensors.has(&format!("{}.weight", at("ffn_gate")));
        let d_ff = if whole { width } else { width / 2 };
        let (gate, up) = if whole {
            let gate = options.gated.then(|| self.linear(&at("ffn_gate"), d_ff, d_model)).transpose()?;
            (gate, self.linear(&at("ffn_up"), d_ff, d_model)?)
        } else {
            let fused = at("ffn_up");
            let gate = self.linear_rows(&fused, 2 * d_ff, d_model, 0..d_ff)?;
            let up = self.linear_rows(&fused, 2 * d_ff, d_model, d_ff..2 * d_ff)?;
            self.tensors.note(&format!("{}.weight", at("ffn_gate")), gate.weight);
            self.tensors.note(&format!("{}.weight", at("ffn_up")), up.weight);
            (Some(gate), up)
        };
        let down = self.linear(&at("ffn_down"), d_model, d_ff)?;
        Ok(Some(Dense { gate, gate_scale: 1.0, up, down, activation: options.activation() }))
    }

    fn experts(&mut self, layer: usize, options: &MixtureOptions) -> Result<Mixture> {
        let d_model = self.sizes.d_model;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let n_experts = self.n_experts(layer)?;
        let n_used = self.n_used(n_experts, options)?;
        let (stored, d_ff) = self.stored(layer, n_experts, options)?;
        let router = self.tensors.weight(&at("ffn_gate_inp.weight"), &[n_experts, d_model])?;
        let router_bias = self.tensors.optional(&at("ffn_gate_inp.bias"), &[n_experts])?;
        let choice_bias = self.tensors.optional(&at("exp_probs_b.bias"), &[n_experts])?;
        let shape = |out: usize, input: usize| [n_experts, out, input];
        let (gate, up, down) = match stored {
            Stored::OneByOne | Stored::Stacked => {
                let mut stack = |name: &str, out: usize, input: usize| {
                    let each = |expert: usize| at(&format!("{name}.{expert}.weight"));
                    self.tensors.stack(&at(&format!("{name}_exps.weight")), shape(out, input), each)
                };
                let gate = options.gated.then(|| stack("ffn_gate", d_ff, d_model)).transpose()?;
                (gate, stack("ffn_up", d_ff, d_model)?, stack("ffn_down", d_model, d_ff)?)
            }
            Stored::Fused => {
                let gate = self.half(layer, 0, shape(d_ff, d_model), options)?;
                let up = self.half(layer, 1, shape(d_ff, d_model), options)?;
                let down = at("ffn_down_exps.weight");
                let down = if options.interleaved {
                    let stored = vec![n_experts, d_ff, d_model];
                    self.tensors.join(&[(&down, stored)], &shape(d_model, d_ff), Transform::Transpose)?
                } else {
                    self.tensors.weight(&down, &shape(d_model, d_ff))?
                };
                (Some(gate), up, down)
            }
            Stored::Packed => (
                Some(self.packed(layer, "gate_up", (0, 2), shape(d_ff, d_model))?),
                self.packed(layer, "gate_up", (1, 2), shape(d_ff, d_model))?,
                self.packed(layer, "down", (0, 1), shape(d_model, d_ff))?,
            ),
        };
        let biases = self.expert_biases(layer, n_experts, d_ff, options)?;
        // What safetensors have in one stack GGUF has in two.
        gate.into_iter().for_each(|gate| self.tensors.note(&at("ffn_gate_exps.weight"), gate));
        self.tensors.note(&at("ffn_up_exps.weight"), up);
        self.tensors.note(&at("ffn_down_exps.weight"), down);
        if let Some(biases) = &biases {
            self.tensors.note(&at("ffn_gate_exps.bias"), biases.gate);
            self.tensors.note(&at("ffn_up_exps.bias"), biases.up);
        }
        Ok(Mixture {
            router,
            router_bias,
            gate,
            up,
            down,
            biases,
            gating: options.gating,
            n_experts,
            n_used,
            d_ff,
            routing: Routing { choice_bias, ..options.routing },
        })
    }

    /// Rows of the router.
    fn n_experts(&self, layer: usize) -> Result<usize> {
        let d_model = self.sizes.d_model;
        let info = self.tensors.require(&format!("blk.{layer}.ffn_gate_inp.weight"))?;
        // Older writers swap the sizes of a matrix.
        let found = match info.shape[..] {
            [n, width] | [width, n] if width == d_model => n,
            _ => {
                let (tensor, found) = (info.name.clone(), info.shape.clone());
                return Err(Error::Shape { tensor, found, wanted: vec![0, d_model] });
            }
        };
        let (gguf, hf) = ("expert_count", "num_experts|num_local_experts|n_routed_experts");
        match self.settings.count(gguf, hf)? {
            Some(told) if told != found => Err(Error::setting(
                self.settings.name(gguf, hf),
                format!("{told}, but `{}` has {found} rows", info.name),
            )),
            _ => Ok(found),
        }
    }

    /// Experts that a row uses, checked against what there is to choose from.
    fn n_used(&self, n_experts: usize, options: &MixtureOptions) -> Result<usize> {
        let (gguf, hf) = ("expert_used_count", "num_experts_per_tok");
        let bad = |what: String| Err(Error::setting(self.settings.name(gguf, hf), what));
        let n_used = match (self.settings.count(gguf, hf)?, options.n_used) {
            (Some(n), _) | (None, Some(n)) => n,
            (None, None) => return bad("is missing".into()),
        };
        if n_used == 0 || n_used > n_experts {
            return bad(format!("{n_used} of {n_experts} experts"));
        }
        let Some(groups) = options.routing.groups else { return Ok(n_used) };
        if !n_experts.is_multiple_of(groups.n_groups) {
            let what = format!("{n_experts} experts do not divide into {} groups", groups.n_groups);
            return Err(Error::setting(self.settings.name("expert_group_count", "n_group"), what));
        }
        let open = groups.n_used * (n_experts / groups.n_groups);
        if n_used > open {
            return bad(format!("{n_used}, but only {open} experts are in the groups that are chosen"));
        }
        Ok(n_used)
    }

    /// How the experts of layer `layer` are stored, and their width.
    fn stored(&self, layer: usize, n_experts: usize, options: &MixtureOptions) -> Result<(Stored, usize)> {
        let d_model = self.sizes.d_model;
        let find = |name: &str| self.tensors.find(&format!("blk.{layer}.{name}"));
        let (stored, info, rows) = if let Some(stack) = find("ffn_up_exps.weight") {
            (Stored::Stacked, stack, n_experts)
        } else if let Some(fused) = find("ffn_gate_up_exps.weight") {
            (Stored::Fused, fused, 2 * n_experts)
        } else if let Some(blocks) = find("ffn_gate_up_exps.blocks") {
            (Stored::Packed, blocks, 2 * n_experts)
        } else {
            (Stored::OneByOne, self.tensors.require(&format!("blk.{layer}.ffn_up.0.weight"))?, 1)
        };
        let of_pairs = if matches!(stored, Stored::Packed) { 2 } else { 1 };
        let d_ff = info.shape.iter().product::<usize>() * of_pairs / (rows * d_model);
        let bad = |what: String| Err(Error::Tensor { tensor: info.name.clone(), what });
        match stored {
            _ if d_ff == 0 => bad(format!("{:?} holds no {n_experts} experts over {d_model} values", info.shape)),
            Stored::Fused | Stored::Packed if !options.gated => {
                bad("has a gate, which this model's experts do not".into())
            }
            Stored::Packed if !d_model.is_multiple_of(BLOCK) || !d_ff.is_multiple_of(BLOCK) => {
                bad(format!("rows of {d_model} and {d_ff} values do not fill blocks of {BLOCK}"))
            }
            _ => Ok((stored, d_ff)),
        }
    }

    /// The gate (`which` 0) or the up matrix (1) of experts whose two are in one stack.
    fn half(&mut self, layer: usize, which: usize, shape: [usize; 3], options: &MixtureOptions) -> Result<WeightId> {
        let [n_experts, d_ff, d_model] = shape;
        let fused = format!("blk.{layer}.ffn_gate_up_exps.weight");
        if options.interleaved {
            let transform = Transform::TransposeEvery { first: which, step: 2 };
            return self.tensors.join(&[(&fused, vec![n_experts, d_model, 2 * d_ff])], &shape, transform);
        }
        let rows: Vec<Range<usize>> =
            (0..n_experts).map(|e| (2 * e + which) * d_ff..(2 * e + which + 1) * d_ff).collect();
        self.tensors.pick(&fused, &[n_experts, 2 * d_ff, d_model], &rows, &shape, Transform::None)
    }

    /// A stack of MXFP4 matrices, blocks and scales in tensors of bytes; every `step`-th row from `first`.
    fn packed(
        &mut self,
        layer: usize,
        name: &str,
        (first, step): (usize, usize),
        shape: [usize; 3],
    ) -> Result<WeightId> {
        let [n_experts, out, input] = shape;
        let at = |kind: &str| format!("blk.{layer}.ffn_{name}_exps.{kind}");
        let (blocks, scales) = (at("blocks"), at("scales"));
        for name in [&blocks, &scales] {
            let info = self.tensors.require(name)?;
            if info.dtype != DType::U8 {
                let what = format!("is {}, not bytes of packed experts", info.dtype);
                return Err(Error::Tensor { tensor: info.name.clone(), what });
            }
        }
        let per_row = input / BLOCK;
        let stored = [n_experts, step * out, per_row];
        let parts = [(blocks.as_str(), [&stored[..], &[BLOCK / 2]].concat()), (scales.as_str(), stored.to_vec())];
        self.tensors.join(&parts, &shape, Transform::Mxfp4 { first, step })
    }

    fn expert_biases(
        &mut self,
        layer: usize,
        n_experts: usize,
        d_ff: usize,
        options: &MixtureOptions,
    ) -> Result<Option<ExpertBiases>> {
        let at = |name: &str| format!("blk.{layer}.{name}_exps.bias");
        let (wide, fused) = ([n_experts, d_ff], at("ffn_gate_up"));
        let (gate, up) = if options.interleaved && self.tensors.has(&fused) {
            let mut half = |first| {
                let transform = Transform::Every { first, step: 2 };
                self.tensors.join(&[(&fused, vec![n_experts, 2 * d_ff])], &wide, transform)
            };
            (half(0)?, half(1)?)
        } else if self.tensors.has(&at("ffn_up")) {
            (self.tensors.weight(&at("ffn_gate"), &wide)?, self.tensors.weight(&at("ffn_up"), &wide)?)
        } else {
            return Ok(None);
        };
        Ok(Some(ExpertBiases {
            gate,
            up,
            down: self.tensors.weight(&at("ffn_down"), &[n_experts, self.sizes.d_model])?,
        }))
    }
}
