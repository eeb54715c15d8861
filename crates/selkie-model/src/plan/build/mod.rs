//! From a schedule to a plan: one builder for each mixer and feed-forward part.

mod feed_forward;
mod mixer;

use super::{Buffer, BufferId, Op, Plan, Product, Rows, Slot, SlotId};
use crate::spec::{Block, Conv, Layer, Linear, ModelSpec, Norm, SharedBlock};

/// The forward pass of `spec`, unfused.
pub fn plan(spec: &ModelSpec) -> Plan {
    let mut b = Builder { spec, ops: vec![], layer_of: vec![], buffers: vec![], slots: vec![], layer: None };
    // Where it is read again later it has a name of its own.
    let read_again = spec.layers.iter().any(|layer| layer.shared.is_some());
    let mut x = b.buffer(if read_again { "e" } else { "x" }, spec.d_model);
    b.push(Op::Embed { table: spec.embedding, scale: spec.embedding_scale, out: x });
    let embedding = x;
    let mut layers = vec![];
    for (i, layer) in spec.layers.iter().enumerate() {
        b.layer = Some(i);
        x = b.layer(layer, x, embedding);
        layers.push(layer.to_string());
    }
    b.layer = None;
    let (hidden, logits) = b.head(x);
    let Builder { ops, layer_of, buffers, slots, .. } = b;
    Plan { ops, layer_of, layers, buffers, slots, hidden, logits }
}

struct Builder<'a> {
    spec: &'a ModelSpec,
    ops: Vec<Op>,
    layer_of: Vec<Option<usize>>,
    buffers: Vec<Buffer>,
    slots: Vec<Slot>,
    layer: Option<usize>,
}

impl Builder<'_> {
    fn push(&mut self, op: Op) {
        self.ops.push(op);
        self.layer_of.push(self.layer);
    }

    fn buffer(&mut self, name: &'static str, width: usize) -> BufferId {
        self.buffer_of(name, Rows::All, width)
    }

    fn buffer_of(&mut self, name: &'static str, rows: Rows, width: usize) -> BufferId {
        self.buffers.push(Buffer { name, rows, width });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// `out` has the shape of `x`.
    fn like(&mut self, name: &'static str, x: BufferId) -> BufferId {
        let Buffer { rows, width, .. } = self.buffers[x.0 as usize];
        self.buffer_of(name, rows, width)
    }

    fn width(&self, x: BufferId) -> usize {
        self.buffers[x.0 as usize].width
    }

    fn slot(&mut self, slot: Slot) -> SlotId {
        self.slots.push(slot);
        SlotId(self.slots.len() as u32 - 1)
    }

    /// `x · weightᵀ + bias`, and `(x · downᵀ) · upᵀ` added where there is a correction.
    fn linear(&mut self, name: &'static str, x: BufferId, linear: Linear) -> BufferId {
        let rows = self.buffers[x.0 as usize].rows;
        let out = self.buffer_of(name, rows, self.spec.weights.get(linear.weight).rows());
        self.push(Op::Linear { x, product: Product { weight: linear.weight, bias: linear.bias, out } });
        let Some(correction) = linear.low_rank else { return out };
        let low = self.linear("low", x, Linear::new(correction.down));
        let y = self.linear("correction", low, Linear::new(correction.up));
        self.add(name, out, y, 1.0)
    }

    fn norm(&mut self, name: &'static str, x: BufferId, norm: Norm) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::RmsNorm { x, weight: norm.weight, group: norm.group, eps: norm.eps, out });
        out
    }

    /// `scale · x`; nothing where that is `x`.
    fn scale(&mut self, name: &'static str, x: BufferId, scale: f32) -> BufferId {
        if scale == 1.0 {
            return x;
        }
        let out = self.like(name, x);
        self.push(Op::Scale { x, scale, out });
        out
    }

    fn add(&mut self, name: &'static str, x: BufferId, y: BufferId, scale: f32) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::Add { x, y, scale, out });
        out
    }

    fn conv(&mut self, name: &'static str, x: BufferId, conv: Conv) -> BufferId {
        let weight = self.spec.weights.get(conv.weight);
        let state = self.slot(Slot::Conv { channels: weight.rows(), taps: weight.row_len() });
        let out = self.like(name, x);
        self.push(Op::CausalConv { x, weight: conv.weight, bias: conv.bias, silu: conv.silu, state, out });
        out
    }

    fn layer(&mut self, layer: &Layer, mut x: BufferId, embedding: BufferId) -> BufferId {
        if let Some(block) = &layer.mixer {
            let seen = layer.shared.as_ref().map_or(x, |shared| self.shared(shared, x, embedding));
            let n = self.pre_norm(block, seen);
            let y = self.mixer(&block.inner, n);
            x = self.residual(block, x, y);
        }
        if let Some(block) = &layer.feed_forward {
            let n = self.pre_norm(block, x);
            let y = self.feed_forward(&block.inner, n);
            x = self.residual(block, x, y);
        }
        x
    }

    /// The stream with what the shared block makes of it and of the embedding.
    fn shared(&mut self, shared: &SharedBlock, x: BufferId, embedding: BufferId) -> BufferId {
        let both = self.buffer("both", 2 * self.spec.d_model);
        self.push(Op::JoinHeads { a: x, b: embedding, n_heads: 1, out: both });
        let n = self.norm("n", both, shared.norm);
        let y = self.attention(&shared.attention, n);
        let n = self.norm("n", y, shared.ff_norm);
        let y = self.dense("y", &shared.feed_forward, n);
        let y = self.linear("y", y, shared.out);
        self.add("seen", x, y, 1.0)
    }

    fn pre_norm<T>(&mut self, block: &Block<T>, x: BufferId) -> BufferId {
        block.pre_norm.map_or(x, |norm| self.norm("n", x, norm))
    }

    fn residual<T>(&mut self, block: &Block<T>, x: BufferId, y: BufferId) -> BufferId {
        let y = block.post_norm.map_or(y, |norm| self.norm("y", y, norm));
        self.add("x", x, y, block.residual_scale)
    }

    /// Rows are taken before the head: logits of a prompt's inner rows are rarely wanted, and cost most of a pass.
    fn head(&mut self, x: BufferId) -> (BufferId, BufferId) {
        let spec = self.spec;
        let taken = self.buffer_of("x", Rows::Outputs, spec.d_model);
        self.push(Op::TakeRows { x, out: taken });
        let hidden = self.norm("n", taken, spec.final_norm);
        let logits = self.linear("logits", hidden, spec.head);
        let mut logits = self.scale("logits", logits, spec.logit_scale);
        if let Some(cap) = spec.logit_softcap {
            let out = self.like("logits", logits);
            self.push(Op::SoftCap { x: logits, cap, out });
            logits = out;
        }
        (hidden, logits)
    }
}
