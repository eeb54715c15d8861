//! The plan as text: what `selkie plan` shows.

use std::fmt::Write;

use super::{BufferId, Op, Plan, Product, Rows, SlotId};
use crate::{ModelSpec, WeightId};

impl Plan {
    /// The plan as a table, one line an op; neighbouring layers of one form are printed once.
    pub fn print(&self, spec: &ModelSpec) -> String {
        let mut text = String::new();
        let mut groups: Vec<(Option<usize>, usize, Vec<String>)> = vec![];
        let mut at = 0;
        while at < self.ops.len() {
            let layer = self.layer_of[at];
            let run = self.layer_of[at..].iter().take_while(|l| **l == layer).count();
            let lines = self.ops[at..at + run].iter().map(|op| self.line(op, spec)).collect::<Vec<_>>();
            at += run;
            match groups.last_mut() {
                Some((Some(_), count, same)) if layer.is_some() && *same == lines => *count += 1,
                _ => groups.push((layer, 1, lines)),
            }
        }
        for (layer, count, lines) in groups {
            let heading = match layer {
                Some(first) if count > 1 => {
                    format!("layers {first} to {} ({count} of them)   {}", first + count - 1, self.layers[first])
                }
                Some(only) => format!("layer {only}   {}", self.layers[only]),
                None => String::new(),
            };
            if !heading.is_empty() {
                let _ = writeln!(text, "{heading}");
            }
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        text
    }

    fn line(&self, op: &Op, spec: &ModelSpec) -> String {
        let outputs: Vec<&str> = op.outputs().iter().map(|b| self.buffer(*b).name).collect();
        let text = format!("{:<8} = {}", outputs.join(", "), self.expression(op, spec));
        let shapes: Vec<String> = op.outputs().iter().map(|b| self.shape(*b)).collect();
        let types = self.types(op, spec);
        format!("{text:<58} {:<26} {types}", shapes.join(" ")).trim_end().to_owned()
    }

    fn shape(&self, buffer: BufferId) -> String {
        let buffer = self.buffer(buffer);
        let rows = if buffer.rows == Rows::All { "rows" } else { "outputs" };
        format!("[{rows}, {}]", buffer.width)
    }

    /// The stored types of the matrices that an op reads.
    fn types(&self, op: &Op, spec: &ModelSpec) -> String {
        let matrices: Vec<WeightId> = match op {
            Op::Embed { table, .. } => vec![*table],
            Op::Linear { product, .. } => vec![product.weight],
            Op::Linears { products, .. } => products.iter().map(|p| p.weight).collect(),
            Op::LinearGlu { gate, up, .. } => vec![gate.weight, up.weight],
            Op::LinearAdd { weight, .. } => vec![*weight],
            Op::Mixture { mixture: m, .. } => vec![m.gate, m.up, m.down],
            _ => vec![],
        };
        let mut types: Vec<&str> = matrices.iter().map(|id| spec.weights.get(*id).dtype().name()).collect();
        types.dedup();
        types.join(" | ")
    }

    fn expression(&self, op: &Op, spec: &ModelSpec) -> String {
        let b = |id: BufferId| self.buffer(id).name;
        let w = |id: WeightId| short(&spec.weights.get(id).name).to_owned();
        let linear = |x: BufferId, p: &Product| {
            let bias = p.bias.map(|id| format!(" + {}", w(id))).unwrap_or_default();
            format!("linear({}, {}){bias}", b(x), w(p.weight))
        };
        let scaled = |scale: f32| if scale == 1.0 { String::new() } else { format!("{scale} · ") };
        match op {
            Op::Embed { table, scale, .. } => format!("{}embed(ids, {})", scaled(*scale), w(*table)),
            Op::RmsNorm { x, weight, .. } => format!("rms_norm({}, {})", b(*x), w(*weight)),
            Op::Linear { x, product } => linear(*x, product),
            Op::Rope { x, rope, .. } => format!("rope({}, positions, {})", b(*x), spec.ropes[*rope].n_dims),
            Op::Attention(a) => {
                let SlotId(_) = a.cache;
                let window = a.window.map(|n| format!(", window {n}")).unwrap_or_default();
                let cap = a.softcap.map(|c| format!(", soft cap {c}")).unwrap_or_default();
                format!("attention({}, {}, {}, kv_cache{window}{cap})", b(a.q), b(a.k), b(a.v))
            }
            Op::Glu { gate, up, activation, .. } => format!("{}({}) · {}", activation.name(), b(*gate), b(*up)),
            Op::Mixture { x, mixture: m, .. } => {
                format!("mixture({}, {}, {} of {}, width {})", b(*x), w(m.router), m.n_used, m.n_experts, m.d_ff)
            }
            Op::Add { x, y, scale, .. } => format!("{} + {}{}", b(*x), scaled(*scale), b(*y)),
            Op::Scale { x, scale, .. } => format!("{scale} · {}", b(*x)),
            Op::SoftCap { x, cap, .. } => format!("{cap} · tanh({} / {cap})", b(*x)),
            Op::TakeRows { x, .. } => format!("{}[outputs]", b(*x)),
            Op::Linears { x, products } => {
                let names: Vec<String> = products.iter().map(|p| w(p.weight)).collect();
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
