//! From a schedule to a plan: one builder for each mixer and feed-forward part.

use super::{AttentionOp, Buffer, BufferId, Op, Plan, Product, Rows, Slot, SlotId};
use crate::spec::{Attention, Block, Dense, FeedForward, Linear, Mixer, Mixture, ModelSpec, Norm};

/// The forward pass of `spec`, unfused.
pub fn plan(spec: &ModelSpec) -> Plan {
    let mut b = Builder { spec, ops: vec![], layer_of: vec![], buffers: vec![], slots: vec![], layer: None };
    let mut x = b.buffer("x", spec.d_model);
    b.push(Op::Embed { table: spec.embedding, scale: spec.embedding_scale, out: x });
    let mut layers = vec![];
    for (i, layer) in spec.layers.iter().enumerate() {
        b.layer = Some(i);
        let mut parts = vec![];
        if let Some(block) = &layer.mixer {
            let n = b.pre_norm(block, x);
            let y = match &block.inner {
                Mixer::Attention(attention) => b.attention(attention, n),
            };
            x = b.residual(block, x, y);
            parts.push(mixer_name(&block.inner));
        }
        if let Some(block) = &layer.feed_forward {
            let n = b.pre_norm(block, x);
            let y = match &block.inner {
                FeedForward::Dense(dense) => b.dense(dense, n),
                FeedForward::Mixture(mixture) => b.mixture(mixture, n),
            };
            x = b.residual(block, x, y);
            parts.push(match &block.inner {
                FeedForward::Dense(_) => "dense".into(),
                FeedForward::Mixture(m) => format!("mixture of {} ({} used)", m.n_experts, m.n_used),
            });
        }
        layers.push(parts.join(" + "));
    }
    b.layer = None;
    let (hidden, logits) = b.head(x);
    let Builder { ops, layer_of, buffers, slots, .. } = b;
    Plan { ops, layer_of, layers, buffers, slots, hidden, logits }
}

fn mixer_name(mixer: &Mixer) -> String {
    match mixer {
        Mixer::Attention(a) => match (a.window, a.rope) {
            (Some(w), _) => format!("attention over {w}"),
            (None, None) => "attention without positions".into(),
            (None, Some(_)) => "attention".into(),
        },
    }
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

    fn linear(&mut self, name: &'static str, x: BufferId, linear: Linear) -> BufferId {
        let rows = self.buffers[x.0 as usize].rows;
        let out = self.buffer_of(name, rows, self.spec.weights.get(linear.weight).rows());
        self.push(Op::Linear { x, product: Product { weight: linear.weight, bias: linear.bias, out } });
        out
    }

    fn norm(&mut self, name: &'static str, x: BufferId, norm: Norm) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::RmsNorm { x, weight: norm.weight, eps: norm.eps, out });
        out
    }

    fn pre_norm<T>(&mut self, block: &Block<T>, x: BufferId) -> BufferId {
        block.pre_norm.map_or(x, |norm| self.norm("n", x, norm))
    }

    fn residual<T>(&mut self, block: &Block<T>, x: BufferId, y: BufferId) -> BufferId {
        let y = block.post_norm.map_or(y, |norm| self.norm("y", y, norm));
        let out = self.like("x", x);
        self.push(Op::Add { x, y, scale: block.residual_scale, out });
        out
    }

    fn attention(&mut self, a: &Attention, n: BufferId) -> BufferId {
        let mut q = self.linear("q", n, a.q);
        let mut k = self.linear("k", n, a.k);
        let v = self.linear("v", n, a.v);
        if let Some(norm) = a.q_norm {
            q = self.norm("q", q, norm);
        }
        if let Some(norm) = a.k_norm {
            k = self.norm("k", k, norm);
        }
        if let Some(rope) = a.rope {
            q = self.rope("q", q, rope, a.head_dim);
            k = self.rope("k", k, rope, a.head_dim);
        }
        self.slots.push(Slot::KvCache { n_kv_heads: a.n_kv_heads, head_dim: a.head_dim, window: a.window });
        let cache = SlotId(self.slots.len() as u32 - 1);
        let out = self.buffer("a", a.n_heads * a.head_dim);
        self.push(Op::Attention(AttentionOp {
            q,
            k,
            v,
            cache,
            n_heads: a.n_heads,
            n_kv_heads: a.n_kv_heads,
            head_dim: a.head_dim,
            scale: a.scale,
            softcap: a.softcap,
            window: a.window,
            out,
        }));
        self.linear("y", out, a.o)
    }

    fn rope(&mut self, name: &'static str, x: BufferId, rope: usize, head_dim: usize) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::Rope { x, rope, head_dim, out });
        out
    }

    fn dense(&mut self, d: &Dense, n: BufferId) -> BufferId {
        let gate = self.linear("g", n, d.gate);
        let up = self.linear("u", n, d.up);
        let h = self.like("h", gate);
        self.push(Op::Glu { gate, up, activation: d.activation, out: h });
        self.linear("y", h, d.down)
    }

    fn mixture(&mut self, m: &Mixture, n: BufferId) -> BufferId {
        let out = self.like("y", n);
        self.push(Op::Mixture { x: n, mixture: *m, out });
        out
    }

    /// Rows are taken before the head: logits of a prompt's inner rows are rarely wanted, and cost most of a pass.
    fn head(&mut self, x: BufferId) -> (BufferId, BufferId) {
        let spec = self.spec;
        let taken = self.buffer_of("x", Rows::Outputs, spec.d_model);
        self.push(Op::TakeRows { x, out: taken });
        let hidden = self.norm("n", taken, spec.final_norm);
        let mut logits = self.linear("logits", hidden, spec.head);
        if spec.logit_scale != 1.0 {
            let out = self.like("logits", logits);
            self.push(Op::Scale { x: logits, scale: spec.logit_scale, out });
            logits = out;
        }
        if let Some(cap) = spec.logit_softcap {
            let out = self.like("logits", logits);
            self.push(Op::SoftCap { x: logits, cap, out });
            logits = out;
        }
        (hidden, logits)
    }
}
