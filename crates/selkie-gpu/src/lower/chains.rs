//! Ops next to each other that are dispatched as one.

use selkie_model::{
    WeightId,
    plan::{BufferId, Op, Product, Slot, SlotId},
    spec::Activation,
};

use super::{Input, Lowered, RowNorm, Run, Then};

/// How a head's results of all ranks become one, with ops between that nobody else reads:
/// `out[h] = Σ out_weight[h, r] · activation(gate_weight[h, r] · gate[h]) · norm(x[h, r])`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankGate {
    /// `[rows, n_heads · rank · head_dim]`.
    pub x: BufferId,
    /// `[rows, n_heads · head_dim]`.
    pub gate: BufferId,
    /// `[n_heads, rank, head_dim]`.
    pub gate_weight: WeightId,
    /// `[n_heads, rank, head_dim]`.
    pub out_weight: WeightId,
    /// Of each head and rank.
    pub norm: Option<RowNorm>,
    /// Of the gates.
    pub activation: Activation,
    /// Width of a head.
    pub head_dim: usize,
    /// `[rows, n_heads · head_dim]`.
    pub out: BufferId,
}

/// Queries, keys and values of latent attention, head by head: `q = [k_up · q_nope | rope(q_rope)]`, `k = [c | rope(k_rope)]`, and
/// `v = c`.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// `[rows, n_heads · nope_dim]`.
    pub q_nope: BufferId,
    /// `[n_heads, rank, nope_dim]`.
    pub k_up: WeightId,
    /// Query heads.
    pub n_heads: usize,
    /// Before it is turned, `[rows, n_heads · rope_dim]`.
    pub q_rope: BufferId,
    /// Before it is turned, `[rows, rope_dim]`.
    pub k_rope: BufferId,
    /// The rotary embedding.
    pub rope: usize,
    /// With its norm, `[rows, rank]`.
    pub c: Input,
    /// `[rows, n_heads · (rank + rope_dim)]`.
    pub q: BufferId,
    /// `[rows, rank + rope_dim]`.
    pub k: BufferId,
    /// `[rows, rank]`.
    pub v: BufferId,
}

/// A short causal convolution of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// `[rows, channels]`.
    pub x: BufferId,
    /// `[channels, taps]`.
    pub weight: WeightId,
    /// `[channels]`.
    pub bias: Option<WeightId>,
    /// Whether a silu follows.
    pub silu: bool,
    /// The rows before.
    pub state: SlotId,
    /// `[rows, channels]`.
    pub out: BufferId,
}

/// `out = residual + scale · (weight · x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// `[rows, cols]`.
    pub x: BufferId,
    /// `[width, cols]`.
    pub weight: WeightId,
    /// `[rows, width]`.
    pub residual: BufferId,
    /// Multiplies the sum.
    pub scale: f32,
    /// `[rows, width]`.
    pub out: BufferId,
}

impl Conv {
    fn of(op: &Op) -> Option<Self> {
        let Op::CausalConv { x, weight, bias, silu, state, out } = *op else { return None };
        Some(Self { x, weight, bias, silu, state, out })
    }
}

/// Products that are corrected in one dispatch at most.
const CORRECTIONS: usize = 4;
/// Slots that one dispatch sees at most.
const SLOTS: usize = 3;

impl Run<'_> {
    /// Lowers the first of `ops`, or as many as make one dispatch; says how many.
    pub(super) fn ops(&mut self, ops: &[Op]) -> usize {
        if let Some((op, n)) = rank_gate(ops, |id| self.reads.get(&id) == Some(&1)) {
            self.whole(op.x);
            self.whole(op.gate);
            self.push(Lowered::RankGate(op));
            return n;
        }
        if let Some(op) = self.latent(ops) {
            self.whole(op.q_nope);
            self.whole(op.q_rope);
            self.whole(op.k_rope);
            self.unmade.remove(&op.v);
            // With compressed queries there is a product more, so that there should be a dispatch less here.
            let apart = !self.made_together(op.q_nope, op.c.x);
            if let [Op::Attention(attention), Op::HeadLinear { x, weight, out, .. }, ..] = ops[3..]
                && (self.lazy.latent && apart)
                && (attention.q, attention.k, attention.v, attention.out) == (op.q, op.k, op.v, x)
                && [op.q, op.k, x].iter().all(|id| self.reads.get(id) == Some(&1))
            {
                self.push(Lowered::LatentAttention { op: attention, latent: op, weight, out });
                return 5;
            }
            self.push(Lowered::Latent(op));
            return 3;
        }
        if let [Op::Attention(op), Op::HeadLinear { x, weight, out, .. }, ..] = ops
            && self.lazy.attention
            && *x == op.out
            && self.reads.get(x) == Some(&1)
            && op.sinks.is_none()
        {
            self.whole(op.v);
            let q = self.heads(op.q, op.head_dim);
            let k = self.heads(op.k, op.head_dim);
            self.push(Lowered::HeadAttention { op: *op, q, k, weight: *weight, out: *out });
            return 2;
        }
        let convs = self.convs(ops);
        if !convs.is_empty() {
            convs.iter().for_each(|conv| self.whole(conv.x));
            let n = convs.len();
            self.push(Lowered::Convs(convs));
            return n;
        }
        if let Some(n) = self.corrected(ops) {
            return n;
        }
        if let Some(n) = self.scaled_glu(ops) {
            return n;
        }
        self.op(&ops[0]);
        1
    }

    /// Products of one input, each corrected by a product of low rank: all that read the input together, and then all that correct.
    fn corrected(&mut self, ops: &[Op]) -> Option<usize> {
        let mut list: Vec<Correction> = vec![];
        let (mut first, mut downs): (Vec<Product>, Vec<Product>) = (vec![], vec![]);
        let Op::Linears { x, .. } = ops.first()? else { return None };
        let once = |id: BufferId| self.reads.get(&id) == Some(&1);
        for pair in ops.chunks_exact(2).take(CORRECTIONS) {
            let [Op::Linears { x: same, products }, Op::LinearAdd { x: low, weight, bias: None, residual, scale, out }] =
                pair
            else {
                break;
            };
            let [product, down] = products[..] else { break };
            let chained = down.out == *low && product.out == *residual && down.bias.is_none();
            if same != x || !chained || !once(*low) || !once(*residual) || list.iter().any(|c| c.scale != *scale) {
                break;
            }
            // What two share is made once.
            let known = downs.iter().find(|known| known.weight == down.weight).copied();
            if known.is_none() {
                downs.push(down);
            }
            first.push(product);
            let (x, weight, residual, scale, out) = (known.unwrap_or(down).out, *weight, *residual, *scale, *out);
            list.push(Correction { x, weight, residual, scale, out });
        }
        let n = list.len();
        if n < 2 {
            return None;
        }
        let input = self.product_input(*x);
        self.push(Lowered::Products { input, products: [first, downs].concat(), then: Then::Store });
        self.push(Lowered::Corrections(list));
        Some(2 * n)
    }

    /// Whether one dispatch makes both.
    fn made_together(&self, a: BufferId, b: BufferId) -> bool {
        let makes = |id: BufferId| move |made: &&(Lowered, _)| made.0.writes().contains(&id);
        self.out.iter().rfind(makes(a)).is_some_and(|made| makes(b)(&made))
    }

    /// Convolutions next to each other that do the same to what one op made.
    fn convs(&self, ops: &[Op]) -> Vec<Conv> {
        let mut convs: Vec<Conv> = vec![];
        let taps = |conv: &Conv| match self.plan.slots[conv.state.0 as usize] {
            Slot::Conv { taps, .. } => Some(taps),
            _ => None,
        };
        for conv in ops.iter().map_while(Conv::of).take(SLOTS) {
            let alike = convs.first().is_none_or(|first| {
                taps(first) == taps(&conv) && first.silu == conv.silu && self.made_together(first.x, conv.x)
            });
            if !alike {
                break;
            }
            convs.push(conv);
        }
        convs
    }

    /// Two products of one input, the second multiplied by the activated first, which is scaled before.
    fn scaled_glu(&mut self, ops: &[Op]) -> Option<usize> {
        let [Op::Linear { x, product: gate }, Op::Scale { x: unscaled, scale, out: scaled }, rest @ ..] = ops else {
            return None;
        };
        let [Op::Linear { x: same, product: up }, Op::Glu { gate: by, up: of, activation, out }, ..] = rest else {
            return None;
        };
        let once = |id: &BufferId| self.reads.get(id) == Some(&1);
        let chained = x == same && gate.out == *unscaled && by == scaled && *of == up.out;
        if !chained || ![unscaled, scaled, of].into_iter().all(once) {
            return None;
        }
        let input = self.product_input(*x);
        let then = Then::Glu { activation: *activation, scale: *scale, out: *out };
        self.push(Lowered::Products { input, products: vec![*gate, *up], then });
        Some(4)
    }

    /// What latent attention reads, where one dispatch makes all of it.
    fn latent(&self, ops: &[Op]) -> Option<Latent> {
        let [Op::HeadLinear { x: q_nope, weight: k_up, n_heads, out: up }, queries, keys, ..] = ops else {
            return None;
        };
        let Op::JoinHeads { a, b: q_rope, n_heads: same, out: q } = queries else { return None };
        let Op::JoinHeads { a: c, b: k_rope, n_heads: 1, out: k } = keys else { return None };
        let chained = self.lazy.attention && a == up && same == n_heads && self.reads.get(up) == Some(&1);
        let turned = |id: &BufferId| {
            let input = self.unmade.get(id)?;
            let (rope, _) = input.rope?;
            let plain = Input { rope: None, ..input.clone() }.is_plain();
            plain.then_some((input.x, rope))
        };
        let ((q_rope, rope), (k_rope, other)) = (turned(q_rope)?, turned(k_rope)?);
        let value = self.unmade.get(c)?.clone();
        let normed = value.norm.is_some_and(|norm| norm.group == self.plan.buffer(*c).width);
        let plain = normed && Input { norm: None, ..value.clone() }.is_plain();
        let made = Latent {
            q_nope: *q_nope,
            k_up: *k_up,
            n_heads: *n_heads,
            q_rope,
            k_rope,
            rope,
            c: value,
            q: *q,
            k: *k,
            v: *c,
        };
        (chained && plain && rope == other).then_some(made)
    }
}

/// Ranks' gates, with a norm of the results or without, and the way back: as one, and how many ops that are.
fn rank_gate(ops: &[Op], once: impl Fn(BufferId) -> bool) -> Option<(RankGate, usize)> {
    let [Op::RankExpand { x: gate, weight: gate_weight, head_dim, out: expanded }, rest @ ..] = ops else {
        return None;
    };
    let (norm, rest) = match rest {
        [Op::RmsNorm { x, weight, group, eps, out }, rest @ ..] if group == head_dim && once(*out) => {
            (Some((*x, *out, RowNorm { weight: *weight, group: *group, eps: *eps })), rest)
        }
        _ => (None, rest),
    };
    let [Op::Glu { gate: by, up, activation, out: gated }, Op::RankReduce { x, weight, head_dim: same, out }, ..] =
        rest
    else {
        return None;
    };
    let chained = by == expanded && x == gated && same == head_dim && norm.is_none_or(|norm| norm.1 == *up);
    let alone = once(*expanded) && once(*gated) && up != expanded;
    let made = RankGate {
        x: norm.map_or(*up, |norm| norm.0),
        gate: *gate,
        gate_weight: *gate_weight,
        out_weight: *weight,
        norm: norm.map(|norm| norm.2),
        activation: *activation,
        head_dim: *head_dim,
        out: *out,
    };
    (chained && alone).then_some((made, 3 + usize::from(norm.is_some())))
}
