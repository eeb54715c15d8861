//! From a plan's ops to what is dispatched.
//!
//! A value that is cheap to make of another (a norm, a gate, a scale) is not made until somebody needs it whole: products
//! make it of their input on the way, in workgroup memory, and attention turns queries and keys itself. Where a regime or a
//! kernel cannot, the value is made by a dispatch of its own.

mod chains;
mod early;

use std::collections::HashMap;

pub use chains::{Conv, Correction, Latent, RankGate};
use selkie_model::{
    WeightId,
    plan::{AttentionOp, BufferId, Mamba3Op, Op, Plan, Product, SelectiveScanOp, SsdOp},
    spec::{Activation, Mixture},
};

/// A row of values, made of another: gate, norm, gate, scale, in this order, each where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// What it is made of.
    pub x: BufferId,
    /// What stands behind that in a row.
    pub joined: Option<BufferId>,
    /// First step.
    pub before: Option<Gate>,
    /// Second step.
    pub norm: Option<RowNorm>,
    /// Third step.
    pub after: Option<Gate>,
    /// Multiplies the result.
    pub scale: f32,
    /// Last step, which only attention takes: the rotary embedding and the width of a head.
    pub rope: Option<(usize, usize)>,
}

/// `x / sqrt(mean(x²) + eps) · weight` over groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowNorm {
    /// As long as a row or a group.
    pub weight: Option<WeightId>,
    /// Values that are normed together.
    pub group: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// A function of single values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// `f(x)`.
    Of(Function),
    /// `f(scale · gate) · x`.
    By(BufferId, Function, f32),
    /// `f(gate) · x`, one gate a row.
    RowBy(BufferId, Function),
}

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// One of the spec's.
    Activation(Activation),
    /// Held within `±limit`.
    Clamp(f32),
    /// `cap · tanh(x / cap)`.
    SoftCap(f32),
}

/// What a product does with its sums.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Each product to its own buffer.
    Store,
    /// `activation(scale · first) · second`.
    Glu {
        /// Of the first product.
        activation: Activation,
        /// Multiplies the first product.
        scale: f32,
        /// Where to.
        out: BufferId,
    },
    /// `residual + scale · sum`.
    Add {
        /// What it is added to.
        residual: BufferId,
        /// Multiplies the sum.
        scale: f32,
        /// Where to.
        out: BufferId,
    },
}

/// What is dispatched.
#[derive(Clone, Debug, PartialEq)]
pub enum Lowered {
    /// `out = residual + scale · input`, or the input itself.
    Rows {
        /// What is made.
        input: Input,
        /// What it is added to, and its factor.
        add: Option<(BufferId, f32)>,
        /// Where to.
        out: BufferId,
    },
    /// Matrix products that share an input.
    Products {
        /// What is multiplied.
        input: Input,
        /// The matrices.
        products: Vec<Product>,
        /// What happens to the sums.
        then: Then,
    },
    /// Attention, queries and keys as they are made.
    Attention {
        /// The op.
        op: AttentionOp,
        /// Queries.
        q: Input,
        /// Keys.
        k: Input,
    },
    /// Mamba-1's recurrence, step sizes, B and C as they are made.
    SelectiveScan {
        /// The op.
        op: SelectiveScanOp,
        /// What the step sizes are the product of, where they are not made yet.
        dt: Option<(Input, Product)>,
        /// B.
        b: Input,
        /// C.
        c: Input,
    },
    /// Convolutions with as many taps each, and an activation each or none.
    Convs(Vec<Conv>),
    /// Mamba-2's recurrence.
    Ssd {
        /// The op.
        op: SsdOp,
        /// Multiplies the step sizes before anything else does.
        dt_scale: f32,
    },
    /// Mamba-3's recurrence, B and C as they are made.
    Mamba3 {
        /// The op.
        op: Mamba3Op,
        /// B.
        b: Input,
        /// C.
        c: Input,
    },
    /// What latent attention reads.
    Latent(Latent),
    /// Latent attention with what it reads, and each head's matrix times its results.
    LatentAttention {
        /// The op, over what `latent` makes.
        op: AttentionOp,
        /// Queries, keys and values.
        latent: Latent,
        /// `[n_heads, out, v_head_dim]`.
        weight: WeightId,
        /// `[rows, n_heads · out]`.
        out: BufferId,
    },
    /// Attention, and each head's matrix times its results.
    HeadAttention {
        /// The op.
        op: AttentionOp,
        /// Queries.
        q: Input,
        /// Keys.
        k: Input,
        /// `[n_heads, out, v_head_dim]`.
        weight: WeightId,
        /// `[rows, n_heads · out]`.
        out: BufferId,
    },
    /// Ranks become one.
    RankGate(RankGate),
    /// `out = residual + scale · mixture(input)`, or the mixture alone.
    Mixture {
        /// What routers and experts multiply.
        input: Input,
        /// The experts.
        mixture: Mixture,
        /// What the result is added to, and its factor.
        add: Option<(BufferId, f32)>,
        /// Where to.
        out: BufferId,
    },
    /// Products with inputs of their own, each added to a sum that is there.
    Corrections(Vec<Correction>),
    /// An op as it is.
    Op(Op),
}

impl Input {
    /// A buffer as it is.
    pub fn plain(x: BufferId) -> Self {
        Self { x, joined: None, before: None, norm: None, after: None, scale: 1.0, rope: None }
    }

    /// A buffer as it is, and another behind it.
    fn joined(x: BufferId, joined: BufferId) -> Self {
        Self { joined: Some(joined), ..Self::plain(x) }
    }

    /// Whether nothing is done to it.
    pub fn is_plain(&self) -> bool {
        *self == Self::plain(self.x)
    }

    /// The buffers that it is made of.
    pub fn reads(&self) -> Vec<BufferId> {
        let gates = [self.before, self.after].into_iter().flatten();
        let by = gates.filter_map(|gate| match gate {
            Gate::Of(_) => None,
            Gate::By(id, ..) | Gate::RowBy(id, _) => Some(id),
        });
        std::iter::once(self.x).chain(self.joined).chain(by).collect()
    }

    fn with_gate(mut self, gate: Gate) -> Option<Self> {
        let free = self.after.is_none() && self.scale == 1.0 && self.rope.is_none();
        if !free {
            return None;
        }
        match (self.norm, self.before) {
            (None, None) => self.before = Some(gate),
            (Some(_), _) => self.after = Some(gate),
            (None, Some(_)) => return None,
        }
        Some(self)
    }

    fn with_norm(mut self, norm: RowNorm) -> Option<Self> {
        let free = self.norm.is_none() && self.after.is_none() && self.scale == 1.0 && self.rope.is_none();
        free.then(|| {
            self.norm = Some(norm);
            self
        })
    }

    fn with_scale(mut self, scale: f32) -> Option<Self> {
        self.rope.is_none().then(|| {
            self.scale *= scale;
            self
        })
    }

    fn with_rope(mut self, rope: usize, head_dim: usize) -> Option<Self> {
        self.rope.is_none().then(|| {
            self.rope = Some((rope, head_dim));
            self
        })
    }
}

impl Lowered {
    /// The buffers that it reads.
    pub fn reads(&self) -> Vec<BufferId> {
        match self {
            Lowered::Rows { input, add, .. } | Lowered::Mixture { input, add, .. } => {
                input.reads().into_iter().chain(add.map(|a| a.0)).collect()
            }
            Lowered::Products { input, then, .. } => {
                let residual = match then {
                    Then::Add { residual, .. } => Some(*residual),
                    _ => None,
                };
                input.reads().into_iter().chain(residual).collect()
            }
            Lowered::Attention { op, q, k } | Lowered::HeadAttention { op, q, k, .. } => {
                [q.reads(), k.reads(), vec![op.v]].concat()
            }
            Lowered::Latent(op) | Lowered::LatentAttention { latent: op, .. } => {
                vec![op.q_nope, op.q_rope, op.k_rope, op.c.x]
            }
            Lowered::SelectiveScan { op, dt, b, c } => {
                let dt = dt.as_ref().map_or(vec![op.dt], |(input, _)| input.reads());
                [b.reads(), c.reads(), dt, vec![op.x]].concat()
            }
            Lowered::Convs(convs) => convs.iter().map(|conv| conv.x).collect(),
            Lowered::Ssd { op, .. } => vec![op.xbc, op.dt],
            Lowered::Mamba3 { op, b, c } => [b.reads(), c.reads(), vec![op.x, op.dt, op.a, op.trap, op.angle]].concat(),
            Lowered::RankGate(op) => vec![op.x, op.gate],
            Lowered::Corrections(list) => list.iter().flat_map(|c| [c.x, c.residual]).collect(),
            Lowered::Op(op) => op.inputs(),
        }
    }

    /// The buffers that it writes.
    pub fn writes(&self) -> Vec<BufferId> {
        match self {
            Lowered::Rows { out, .. } | Lowered::Mixture { out, .. } => vec![*out],
            Lowered::Products { products, then, .. } => match then {
                Then::Store => products.iter().map(|p| p.out).collect(),
                Then::Glu { out, .. } | Then::Add { out, .. } => vec![*out],
            },
            Lowered::Attention { op, .. } => vec![op.out],
            Lowered::SelectiveScan { op, .. } => vec![op.out],
            Lowered::Convs(convs) => convs.iter().map(|conv| conv.out).collect(),
            Lowered::Ssd { op, .. } => vec![op.out],
            Lowered::Mamba3 { op, .. } => vec![op.out],
            Lowered::Latent(op) => vec![op.q, op.k, op.v],
            Lowered::LatentAttention { latent: op, out, .. } => vec![*out, op.q, op.k, op.v],
            Lowered::HeadAttention { out, .. } => vec![*out],
            Lowered::RankGate(op) => vec![op.out],
            Lowered::Corrections(list) => list.iter().map(|c| c.out).collect(),
            Lowered::Op(op) => op.outputs(),
        }
    }

    /// The buffer that it may write its output over, value for value.
    pub fn over(&self) -> Option<BufferId> {
        match self {
            Lowered::Rows { add: Some((residual, _)), .. } => Some(*residual),
            Lowered::Products { then: Then::Add { residual, .. }, .. } => Some(*residual),
            _ => None,
        }
    }
}

/// Which values may stay unmade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lazy {
    /// Products make their inputs.
    pub products: bool,
    /// Attention turns and norms queries and keys.
    pub attention: bool,
    /// Latent attention makes queries, keys and values, where they are of compressed queries.
    pub latent: bool,
    /// The selective scan makes step sizes and norms B and C.
    pub scan: bool,
    /// The batch is one row, which is the output where there is one.
    pub one_row: bool,
}

/// The plan's dispatches, each with its layer.
pub fn lower(plan: &Plan, lazy: Lazy) -> Vec<(Lowered, Option<usize>)> {
    let reads = reads(plan);
    let (ops, layers) = early::sum_early(plan, &reads);
    let (unmade, turned, steps) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut run = Run { plan, lazy, reads, unmade, turned, steps, out: vec![], layer: None };
    let mut at = 0;
    while let Some(&layer) = layers.get(at) {
        run.layer = layer;
        at += run.ops(&ops[at..]);
    }
    // Callers read the hidden rows and the logits themselves.
    for kept in [plan.hidden, plan.logits] {
        run.layer = None;
        run.whole(kept);
    }
    run.out
}

/// How often each buffer is read, by callers too.
fn reads(plan: &Plan) -> HashMap<BufferId, usize> {
    let mut reads = HashMap::new();
    let by_ops = plan.ops.iter().flat_map(Op::inputs);
    by_ops.chain([plan.hidden, plan.logits]).for_each(|id| *reads.entry(id).or_default() += 1);
    reads
}

struct Run<'a> {
    plan: &'a Plan,
    lazy: Lazy,
    /// How often each buffer is read.
    reads: HashMap<BufferId, usize>,
    unmade: HashMap<BufferId, Input>,
    /// What each value that a rope turns was before.
    turned: HashMap<BufferId, BufferId>,
    /// Step sizes that selective scans make themselves.
    steps: HashMap<BufferId, (Input, Product)>,
    out: Vec<(Lowered, Option<usize>)>,
    layer: Option<usize>,
}

impl Run<'_> {
    fn push(&mut self, lowered: Lowered) {
        self.out.push((lowered, self.layer));
    }

    /// Makes the value of `id`, where it is not made yet.
    fn whole(&mut self, id: BufferId) {
        let Some(input) = self.unmade.remove(&id) else { return };
        match (input.rope, input.joined) {
            (None, Some(b)) if input == Input::joined(input.x, b) => {
                self.push(Lowered::Op(Op::JoinHeads { a: input.x, b, n_heads: 1, out: id }));
            }
            (None, _) => self.push(Lowered::Rows { input, add: None, out: id }),
            (Some((rope, head_dim)), _) => {
                let x = self.turned.get(&id).copied().unwrap_or(input.x);
                self.whole(x);
                self.push(Lowered::Op(Op::Rope { x, rope, head_dim, out: id }));
            }
        }
    }

    /// What `id` is a multiple of, and by which factor; `id` itself where it is more than a multiple.
    fn scaled(&mut self, id: BufferId) -> (BufferId, f32) {
        let input = self.input(id);
        if (Input { scale: 1.0, ..input.clone() }).is_plain() {
            return (input.x, input.scale);
        }
        self.whole(id);
        (id, 1.0)
    }

    /// The value of `id` as far as it is unmade.
    fn input(&self, id: BufferId) -> Input {
        self.unmade.get(&id).cloned().unwrap_or(Input::plain(id))
    }

    /// Leaves `out` unmade as `more` of `x`; where `x` has no room for that, `x` is made first.
    fn defer(&mut self, x: BufferId, out: BufferId, more: impl Fn(Input) -> Option<Input>) {
        let input = more(self.input(x)).or_else(|| {
            self.whole(x);
            more(Input::plain(x))
        });
        // A plain input takes any one step.
        if let Some(input) = input {
            self.unmade.insert(out, input);
        }
    }

    /// What products multiply.
    fn product_input(&mut self, x: BufferId) -> Input {
        let input = self.input(x);
        let one_way = |gate: Option<Gate>| !matches!(gate, Some(Gate::RowBy(..)));
        if self.lazy.products && input.rope.is_none() && one_way(input.before) && one_way(input.after) {
            return input;
        }
        self.whole(x);
        Input::plain(x)
    }

    fn heads(&mut self, x: BufferId, head_dim: usize) -> Input {
        let input = self.input(x);
        let width = self.plan.buffer(x).width;
        let by_head =
            input.norm.is_none_or(|norm| norm.weight.is_some() && (norm.group == head_dim || norm.group == width));
        let clamped = input.after.is_none_or(|gate| matches!(gate, Gate::Of(Function::Clamp(_))))
            && input.before.is_none_or(|gate| input.norm.is_none() && matches!(gate, Gate::Of(Function::Clamp(_))));
        if self.lazy.attention && by_head && clamped && input.scale == 1.0 && input.joined.is_none() {
            return input;
        }
        self.whole(x);
        Input::plain(x)
    }

    /// Whether the last thing pushed is a mixture whose result `y` nobody reads but who adds it to `x`.
    fn mixture_before(&self, x: BufferId, y: BufferId) -> bool {
        let last = self.out.last();
        let own = last.is_some_and(|l| matches!(l.0, Lowered::Mixture { add: None, out, .. } if out == y));
        own && x != y && !self.unmade.contains_key(&x) && self.reads.get(&y) == Some(&1)
    }

    /// Whether all that reads `id` is a selective scan, for its step sizes.
    fn only_steps(&self, id: BufferId) -> bool {
        let mut readers = self.plan.ops.iter().filter(|op| op.inputs().contains(&id));
        let first = readers.next();
        readers.next().is_none() && matches!(first, Some(Op::SelectiveScan(op)) if op.dt == id)
    }

    fn small(&mut self, x: BufferId) -> Input {
        let input = self.input(x);
        let width = self.plan.buffer(x).width;
        let normed = input.norm.is_none_or(|norm| norm.group == width) && input.joined.is_none();
        if self.lazy.scan && normed && input.before.is_none() && input.after.is_none() && input.scale == 1.0 {
            return input;
        }
        self.whole(x);
        Input::plain(x)
    }

    /// B or C of Mamba-3, which its kernels norm in groups.
    fn grouped(&mut self, x: BufferId, group: usize) -> Input {
        let input = self.input(x);
        let normed = input.norm.is_none_or(|norm| norm.group == group) && input.joined.is_none();
        if normed && input.before.is_none() && input.after.is_none() && input.scale == 1.0 && input.rope.is_none() {
            return input;
        }
        self.whole(x);
        Input::plain(x)
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::RmsNorm { x, weight, group, eps, out } => {
                let norm = RowNorm { weight: *weight, group: *group, eps: *eps };
                self.defer(*x, *out, |input| input.with_norm(norm));
            }
            Op::Glu { gate, up, activation, out } => {
                let (gate, scale) = self.scaled(*gate);
                let gate = Gate::By(gate, Function::Activation(*activation), scale);
                self.defer(*up, *out, |input| input.with_gate(gate));
            }
            Op::ScaleRows { x, gate, out } => {
                self.whole(*gate);
                let gate = Gate::RowBy(*gate, Function::Activation(Activation::Sigmoid));
                self.defer(*x, *out, |input| input.with_gate(gate));
            }
            Op::Activate { x, activation, out } => {
                let gate = Gate::Of(Function::Activation(*activation));
                self.defer(*x, *out, |input| input.with_gate(gate));
            }
            Op::Clamp { x, limit, out } => {
                self.defer(*x, *out, |input| input.with_gate(Gate::Of(Function::Clamp(*limit))));
            }
            Op::SoftCap { x, cap, out } => {
                self.defer(*x, *out, |input| input.with_gate(Gate::Of(Function::SoftCap(*cap))));
            }
            Op::Scale { x, scale, out } => self.defer(*x, *out, |input| input.with_scale(*scale)),
            Op::Rope { x, rope, head_dim, out } => {
                self.turned.insert(*out, *x);
                self.defer(*x, *out, |input| input.with_rope(*rope, *head_dim));
            }
            // Rows are read in quads.
            Op::JoinHeads { a, b, n_heads: 1, out }
                if self.lazy.products && self.plan.buffer(*a).width.is_multiple_of(4) =>
            {
                self.whole(*a);
                self.whole(*b);
                self.unmade.insert(*out, Input::joined(*a, *b));
            }
            Op::TakeRows { x, out } if self.lazy.one_row => {
                let input = self.input(*x);
                self.unmade.insert(*out, input);
            }
            Op::Add { x, y, scale, out } if self.mixture_before(*x, *y) => {
                if let Some((Lowered::Mixture { add, out: to, .. }, _)) = self.out.last_mut() {
                    (*add, *to) = (Some((*x, *scale)), *out);
                }
            }
            Op::Add { x, y, scale, out } => {
                self.whole(*x);
                if self.input(*y).rope.is_some() {
                    self.whole(*y);
                }
                let input = self.input(*y);
                self.push(Lowered::Rows { input, add: Some((*x, *scale)), out: *out });
            }
            Op::Mixture { x, mixture, out } => {
                if self.input(*x).joined.is_some() {
                    self.whole(*x);
                }
                let input = self.product_input(*x);
                self.push(Lowered::Mixture { input, mixture: *mixture, add: None, out: *out });
            }
            Op::Linear { x, product } if self.lazy.scan && self.only_steps(product.out) => {
                let input = self.small(*x);
                self.steps.insert(product.out, (input, *product));
            }
            Op::Linear { x, product } => {
                let input = self.product_input(*x);
                self.push(Lowered::Products { input, products: vec![*product], then: Then::Store });
            }
            Op::Linears { x, products } => {
                let input = self.product_input(*x);
                self.push(Lowered::Products { input, products: products.clone(), then: Then::Store });
            }
            Op::LinearGlu { x, gate, up, activation, out } => {
                let input = self.product_input(*x);
                let then = Then::Glu { activation: *activation, scale: 1.0, out: *out };
                self.push(Lowered::Products { input, products: vec![*gate, *up], then });
            }
            Op::LinearAdd { x, weight, bias, residual, scale, out } => {
                self.whole(*residual);
                let input = self.product_input(*x);
                let products = vec![Product { weight: *weight, bias: *bias, out: *out }];
                let then = Then::Add { residual: *residual, scale: *scale, out: *out };
                self.push(Lowered::Products { input, products, then });
            }
            Op::Attention(op) => {
                self.whole(op.v);
                let q = self.heads(op.q, op.head_dim);
                let k = self.heads(op.k, op.head_dim);
                self.push(Lowered::Attention { op: *op, q, k });
            }
            Op::SelectiveScan(op) => {
                self.whole(op.x);
                let dt = self.steps.remove(&op.dt);
                if dt.is_none() {
                    self.whole(op.dt);
                }
                let b = self.small(op.b);
                let c = self.small(op.c);
                self.push(Lowered::SelectiveScan { op: *op, dt, b, c });
            }
            Op::Ssd(op) => {
                self.whole(op.xbc);
                let (dt, dt_scale) = self.scaled(op.dt);
                self.push(Lowered::Ssd { op: SsdOp { dt, ..*op }, dt_scale });
            }
            Op::Mamba3(op) => {
                [op.x, op.dt, op.a, op.trap, op.angle].into_iter().for_each(|id| self.whole(id));
                let b = self.grouped(op.b, op.shape.d_state);
                let c = self.grouped(op.c, op.shape.d_state);
                self.push(Lowered::Mamba3 { op: *op, b, c });
            }
            other => {
                other.inputs().into_iter().for_each(|id| self.whole(id));
                self.push(Lowered::Op(other.clone()));
            }
        }
    }
}
