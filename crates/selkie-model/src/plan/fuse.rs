//! Fusion: a rewrite of the list.
//!
//! Each fused op stands for a run of small ops next to each other whose inner buffers nobody else reads, and means
//! exactly what they mean: the reference executor runs both forms, and a test compares them.

use super::{BufferId, Op, Plan};

/// The plan with runs of ops replaced by fused ones: `gate · up` with its activation, a product with the residual that
/// it is added to, products that share an input.
pub fn fuse(mut plan: Plan) -> Plan {
    let mut reads = vec![0usize; plan.buffers.len()];
    for op in &plan.ops {
        op.inputs().iter().for_each(|b| reads[b.0 as usize] += 1);
    }
    reads[plan.hidden.0 as usize] += 1;
    reads[plan.logits.0 as usize] += 1;
    let once = |b: BufferId| reads[b.0 as usize] == 1;

    let mut ops = Vec::with_capacity(plan.ops.len());
    let mut layer_of = Vec::with_capacity(plan.ops.len());
    let mut rest = plan.ops.as_slice();
    let mut at = 0;
    while let Some(first) = rest.first() {
        let (op, taken) = linear_glu(rest, once)
            .or_else(|| linear_add(rest, once))
            .or_else(|| linears(rest))
            .unwrap_or_else(|| (first.clone(), 1));
        ops.push(op);
        layer_of.push(plan.layer_of[at]);
        at += taken;
        rest = &rest[taken..];
    }
    (plan.ops, plan.layer_of) = (ops, layer_of);
    plan
}

/// Two products of one input, the second multiplied by the activated first.
fn linear_glu(ops: &[Op], once: impl Fn(BufferId) -> bool) -> Option<(Op, usize)> {
    let [Op::Linear { x, product: gate }, Op::Linear { x: x2, product: up }, glu, ..] = ops else { return None };
    let Op::Glu { gate: g, up: u, activation, out } = glu else { return None };
    let fits = x == x2 && *g == gate.out && *u == up.out && once(*g) && once(*u);
    fits.then_some((Op::LinearGlu { x: *x, gate: *gate, up: *up, activation: *activation, out: *out }, 3))
}

/// A product that is added to the stream.
fn linear_add(ops: &[Op], once: impl Fn(BufferId) -> bool) -> Option<(Op, usize)> {
    let [Op::Linear { x, product }, Op::Add { x: residual, y, scale, out }, ..] = ops else { return None };
    let fits = *y == product.out && once(*y) && *residual != product.out;
    let (weight, bias) = (product.weight, product.bias);
    fits.then_some((Op::LinearAdd { x: *x, weight, bias, residual: *residual, scale: *scale, out: *out }, 2))
}

/// Products of one input.
fn linears(ops: &[Op]) -> Option<(Op, usize)> {
    let Op::Linear { x, .. } = ops.first()? else { return None };
    let products: Vec<_> = ops
        .iter()
        .map_while(|op| match op {
            Op::Linear { x: same, product } if same == x => Some(*product),
            _ => None,
        })
        .collect();
    let n = products.len();
    (n > 1).then_some((Op::Linears { x: *x, products }, n))
}
