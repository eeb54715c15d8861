//! The plan as text: what `selkie plan` shows.

use std::{fmt::Write, ops::RangeInclusive};

use super::{BufferId, Op, OpWeights, Plan, Product, Rows};
use crate::{
    ModelSpec, WeightId,
    rope::{RopeScaling, RopeSpec},
    spec::{Activation, InputRule},
    weights::{Part, Weight},
};

/// The widest that a column grows before longer entries push what follows to the right.
const WIDEST: usize = 64;

/// Stands for a slot's number in an expression.
const SLOT: &str = "…";

/// One op in columns, or the same op of several layers.
struct Line {
    outputs: String,
    expression: String,
    /// Which of the state's slots it uses, one a layer.
    slots: Option<RangeInclusive<u32>>,
    shape: String,
    types: String,
}

impl Line {
    /// The same op but for the slot of its layer.
    fn is_like(&self, other: &Line) -> bool {
        (&self.outputs, &self.expression, &self.shape, &self.types)
            == (&other.outputs, &other.expression, &other.shape, &other.types)
    }

    /// Stands for `later` too.
    fn reach(&mut self, later: Line) {
        if let (Some(slots), Some(more)) = (&mut self.slots, later.slots) {
            *slots = *slots.start()..=*more.end();
        }
    }

    fn right_side(&self) -> String {
        match &self.slots {
            None => self.expression.clone(),
            Some(slots) if slots.start() == slots.end() => self.expression.replace(SLOT, &slots.start().to_string()),
            Some(slots) => self.expression.replace(SLOT, &format!("{} to {}", slots.start(), slots.end())),
        }
    }
}

/// Neighbouring layers that have the same lines, or what stands before and after all layers.
struct Group {
    layers: Option<RangeInclusive<usize>>,
    lines: Vec<Line>,
}

impl Plan {
    /// The plan as a table, one line an op; neighbouring layers of one form are printed once.
    ///
    /// Columns: what is written, what it is made of, its shape, the stored types of the matrices read.
    pub fn print(&self, spec: &ModelSpec) -> String {
        let groups = self.groups(spec);
        let width = |column: &dyn Fn(&Line) -> usize| {
            groups.iter().flat_map(|g| &g.lines).map(column).filter(|&n| n <= WIDEST).max().unwrap_or(0)
        };
        let outputs = width(&|l| l.outputs.chars().count());
        let expression = width(&|l| l.right_side().chars().count());
        let shape = width(&|l| l.shape.chars().count());
        let mut text = String::new();
        for group in &groups {
            let heading = match &group.layers {
                Some(layers) => self.heading(layers),
                None if text.is_empty() => "embedding".into(),
                None => "head".into(),
            };
            let _ = writeln!(text, "{}{heading}", if text.is_empty() { "" } else { "\n" });
            for l in &group.lines {
                let (left, right) = (&l.outputs, l.right_side());
                let line = format!("  {left:<outputs$} = {right:<expression$}   {:<shape$}   {}", l.shape, l.types);
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        text
    }

    fn groups(&self, spec: &ModelSpec) -> Vec<Group> {
        let mut groups: Vec<Group> = vec![];
        let mut at = 0;
        while at < self.ops.len() {
            let layer = self.layer_of[at];
            let run = self.layer_of[at..].iter().take_while(|l| **l == layer).count();
            let lines: Vec<Line> = self.ops[at..at + run].iter().map(|op| self.line(op, spec)).collect();
            at += run;
            if let (Some(layer), Some(Group { layers: Some(layers), lines: same })) = (layer, groups.last_mut())
                && same.len() == lines.len()
                && same.iter().zip(&lines).all(|(a, b)| a.is_like(b))
            {
                *layers = *layers.start()..=layer;
                same.iter_mut().zip(lines).for_each(|(a, b)| a.reach(b));
                continue;
            }
            groups.push(Group { layers: layer.map(|n| n..=n), lines });
        }
        groups
    }

    fn heading(&self, layers: &RangeInclusive<usize>) -> String {
        let (first, last) = (*layers.start(), *layers.end());
        let what = &self.layers[first];
        match last - first {
            0 => format!("layer {first}   {what}"),
            more => format!("layers {first} to {last} ({} of them)   {what}", more + 1),
        }
    }

    fn line(&self, op: &Op, spec: &ModelSpec) -> Line {
        let outputs: Vec<&str> = op.outputs().iter().map(|b| self.buffer(*b).name).collect();
        Line {
            outputs: outputs.join(", "),
            expression: self.expression(op, spec),
            slots: op.slot().map(|slot| slot.0..=slot.0),
            shape: self.shape(&op.outputs()),
            types: self.types(op, spec),
        }
    }

    /// `[rows, 64]`, or `[rows, 64 | 32 | 32]` for several outputs, which have the same rows.
    fn shape(&self, outputs: &[BufferId]) -> String {
        let all = outputs.iter().all(|b| self.buffer(*b).rows == Rows::All);
        let widths: Vec<String> = outputs.iter().map(|b| self.buffer(*b).width.to_string()).collect();
        format!("[{}, {}]", if all { "rows" } else { "outputs" }, widths.join(" | "))
    }

    /// The stored types of the matrices that an op reads.
    fn types(&self, op: &Op, spec: &ModelSpec) -> String {
        // A router is no matrix worth a word beside its experts.
        let OpWeights { mut matrices, stacks, .. } = op.weights();
        if !stacks.is_empty() {
            matrices = stacks;
        }
        let mut types: Vec<&str> = matrices.iter().map(|id| spec.weights.get(*id).dtype().name()).collect();
        types.dedup();
        types.join(" | ")
    }

    fn expression(&self, op: &Op, spec: &ModelSpec) -> String {
        let b = |id: BufferId| self.buffer(id).name;
        let w = |id: WeightId| name(spec.weights.get(id));
        let factors = |p: &Product| match p.bias {
            Some(bias) => format!("{}, {}", w(p.weight), w(bias)),
            None => w(p.weight),
        };
        let linear = |x: BufferId, p: &Product| format!("linear({}, {})", b(x), factors(p));
        let scaled = |scale: f32| if scale == 1.0 { String::new() } else { format!("{scale} · ") };
        match op {
            Op::Embed { table, scale, .. } => format!("{}embed(ids, {})", scaled(*scale), w(*table)),
            Op::RmsNorm { x, weight, group, .. } => {
                let width = self.buffer(*x).width;
                // A weight as long as the group says so by itself.
                let long = weight.map_or(width, |id| spec.weights.get(id).row_len());
                let groups = if long == *group { String::new() } else { format!(", groups of {group}") };
                format!("rms_norm({}{}{groups})", b(*x), weight.map(|id| format!(", {}", w(id))).unwrap_or_default())
            }
            Op::Linear { x, product } => linear(*x, product),
            Op::Rope { x, rope, head_dim, .. } => {
                let rope = &spec.ropes[*rope];
                let part = if rope.n_dims < *head_dim { format!(", first {}", rope.n_dims) } else { String::new() };
                format!("rope({}, positions, base {}{part}{})", b(*x), rope.theta, stretched(rope))
            }
            Op::Attention(a) => {
                let usual = (a.head_dim as f32).sqrt().recip();
                let scale = if a.scale == usual { String::new() } else { format!(", scale {}", a.scale) };
                let window = a.window.map(|n| format!(", window {n}")).unwrap_or_default();
                let cap = a.softcap.map(|c| format!(", soft cap {c}")).unwrap_or_default();
                let sinks = a.sinks.map(|id| format!(", {}", w(id))).unwrap_or_default();
                format!("attention({}, {}, {}, kv_cache[{SLOT}]{sinks}{scale}{window}{cap})", b(a.q), b(a.k), b(a.v))
            }
            Op::CausalConv { x, weight, bias, silu, .. } => {
                let bias = bias.map(|id| format!(", {}", w(id))).unwrap_or_default();
                let conv = format!("causal_conv({}, {}{bias}, conv_window[{SLOT}])", b(*x), w(*weight));
                if *silu { format!("silu({conv})") } else { conv }
            }
            Op::SelectiveScan(o) => {
                let hold = if o.input == InputRule::ZeroOrderHold { ", zero-order hold" } else { "" };
                let names = [o.x, o.dt, o.b, o.c].map(b).join(", ");
                format!("selective_scan({names}, {}, {}, scan_state[{SLOT}]{hold})", w(o.a), w(o.d))
            }
            Op::Ssd(o) => {
                let (shape, names) = (o.shape, [o.a, o.d, o.dt_bias].map(w).join(", "));
                let raw = if shape.scale_input { "" } else { ", b as it is" };
                let limits = match (shape.dt_min > 0.0, shape.dt_max < f32::INFINITY) {
                    (false, false) => String::new(),
                    _ => format!(", dt in {}..{}", shape.dt_min, shape.dt_max),
                };
                let heads = heads(shape.n_heads, shape.n_groups);
                format!("ssd({}, {}, {names}, ssm_state[{SLOT}], {heads}{raw}{limits})", b(o.xbc), b(o.dt))
            }
            Op::Mamba3(o) => {
                let shape = o.shape;
                let names = [o.x, o.b, o.c, o.dt, o.a, o.trap, o.angle].map(b).join(", ");
                let mimo = o.mimo_x.map(|id| format!(", {}", w(id))).unwrap_or_default();
                let weights = [o.dt_bias, o.b_bias, o.c_bias, o.d].map(w).join(", ");
                format!("mamba3({names}, {weights}{mimo}, state[{SLOT}], {})", heads(shape.n_heads, shape.n_groups))
            }
            Op::Cssd(o) => {
                let names = [o.a_log, o.d, o.dt_bias].map(w).join(", ");
                let heads = heads(o.shape.n_heads, o.shape.n_groups);
                format!("cssd({}, {}, {names}, state[{SLOT}], {heads})", b(o.xbc), b(o.dt))
            }
            Op::DeltaRule(o) => {
                let names = [o.qkv, o.b, o.a].map(b).join(", ");
                let heads = heads(o.shape.n_v_heads, o.shape.n_k_heads);
                format!("delta_rule({names}, {}, {}, state[{SLOT}], {heads})", w(o.a_weight), w(o.dt_bias))
            }
            Op::Activate { x, activation, .. } => format!("{}({})", activation.name(), b(*x)),
            Op::ScaleRows { x, gate, .. } => format!("sigmoid({}) · {}", b(*gate), b(*x)),
            Op::JoinHeads { a, b: other, n_heads: 1, .. } => format!("join({}, {})", b(*a), b(*other)),
            Op::JoinHeads { a, b: other, n_heads, .. } => format!("join({}, {}, {n_heads} heads)", b(*a), b(*other)),
            Op::HeadLinear { x, weight, n_heads, .. } => format!("linear({}, {}, {n_heads} heads)", b(*x), w(*weight)),
            Op::RankExpand { x, weight, .. } => format!("rank_expand({}, {})", b(*x), w(*weight)),
            Op::RankReduce { x, weight, .. } => format!("rank_reduce({}, {})", b(*x), w(*weight)),
            Op::Glu { gate, up, activation: Activation::Identity, .. } => format!("{} · {}", b(*gate), b(*up)),
            Op::Glu { gate, up, activation, .. } => format!("{}({}) · {}", activation.name(), b(*gate), b(*up)),
            Op::Mixture { x, mixture: m, .. } => {
                format!("mixture({}, {}, {} of {}, width {})", b(*x), w(m.router), m.n_used, m.n_experts, m.d_ff)
            }
            Op::Add { x, y, scale, .. } => format!("{} + {}{}", b(*x), scaled(*scale), b(*y)),
            Op::Scale { x, scale, .. } => format!("{scale} · {}", b(*x)),
            Op::Clamp { x, limit, .. } => format!("clamp({}, {limit})", b(*x)),
            Op::SoftCap { x, cap, .. } => format!("{cap} · tanh({} / {cap})", b(*x)),
            Op::TakeRows { x, .. } => format!("{}[outputs]", b(*x)),
            Op::Linears { x, products } => {
                let names: Vec<String> = products.iter().map(factors).collect();
                format!("linear({}, {})", b(*x), names.join(" | "))
            }
            Op::LinearGlu { x, gate, up, activation, .. } => {
                format!("{}({}) · {}", activation.name(), linear(*x, gate), linear(*x, up))
            }
            Op::LinearAdd { x, weight, bias, residual, scale, out } => {
                let product = Product { weight: *weight, bias: *bias, out: *out };
                format!("{} + {}{}", b(*residual), scaled(*scale), linear(*x, &product))
            }
        }
    }
}

/// `8 heads`, or `8 heads in 2 groups`.
fn heads(n_heads: usize, n_groups: usize) -> String {
    match n_groups {
        1 => format!("{n_heads} heads"),
        n => format!("{n_heads} heads in {n} groups"),
    }
}

/// How a rotary embedding is stretched, where it is.
fn stretched(rope: &RopeSpec) -> String {
    match &rope.scaling {
        RopeScaling::None if rope.freq_factors.is_some() => ", divisors".into(),
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", linear {factor}"),
        RopeScaling::Dynamic { factor, .. } => format!(", dynamic {factor}"),
        RopeScaling::Llama3 { factor, .. } => format!(", llama3 {factor}"),
        RopeScaling::Yarn { factor, .. } => format!(", yarn {factor}"),
        RopeScaling::LongRope { .. } => ", longrope".into(),
    }
}

/// A weight's short name; with its rows where it is some of a tensor's: `attn_qkv[64..96]`.
fn name(weight: &Weight) -> String {
    let short = short(&weight.name);
    match &weight.parts[..] {
        [Part { tensor, rows, row_len }] if rows.len() * row_len < tensor.elements() => {
            format!("{short}[{}..{}]", rows.start, rows.end)
        }
        _ => short.to_owned(),
    }
}

/// A stored name without its layer and ending: `blk.0.attn_q.weight` is `attn_q`.
fn short(name: &str) -> &str {
    let stem = name.strip_suffix(".weight").unwrap_or(name);
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mut at = 0;
    for part in stem.split('.') {
        at += part.len() + 1;
        if is_number(part) {
            return stem.get(at..).unwrap_or(stem);
        }
    }
    stem
}
