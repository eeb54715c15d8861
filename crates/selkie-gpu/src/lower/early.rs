//! Sums where their summands are made.

use std::collections::HashMap;

use selkie_model::plan::{BufferId, Op, Plan};

/// The ops, each with its layer, but for sums of two parts of a layer: `x + scale · (a + b)` becomes `(x + scale · a) + scale · b`,
/// each sum where its summand is made, if `a` is a mixture's result, or a product or a multiple of one.
pub(super) fn sum_early(plan: &Plan, reads: &HashMap<BufferId, usize>) -> (Vec<Op>, Vec<Option<usize>>) {
    let (mut ops, mut layers) = (plan.ops.clone(), plan.layer_of.clone());
    let once = |id: BufferId| reads.get(&id) == Some(&1);
    let mut at = 1;
    while at < ops.len() {
        if let Some(sum) = Sum::at(&ops, at, once) {
            sum.apart(&mut ops, &mut layers, at);
        }
        at += 1;
    }
    (ops, layers)
}

/// A sum that can be made in two steps.
struct Sum {
    /// What is added to.
    stream: BufferId,
    /// The first summand of what is added.
    first: BufferId,
    /// Both.
    both: BufferId,
    /// Multiplies both.
    scale: f32,
    /// The result.
    out: BufferId,
    /// Which ops make the first summand.
    made: std::ops::Range<usize>,
}

impl Sum {
    /// The sum that op `at` makes of what the op before it has summed.
    fn at(ops: &[Op], at: usize, once: impl Fn(BufferId) -> bool) -> Option<Self> {
        let Op::Add { x: stream, y: both, scale, out } = ops[at] else { return None };
        let first = match &ops[at - 1] {
            Op::LinearAdd { residual: first, out, .. } | Op::Add { x: first, out, .. } if *out == both => *first,
            _ => return None,
        };
        let end = ops[..at].iter().rposition(|op| op.outputs().contains(&first))? + 1;
        let made = match &ops[..end] {
            [.., Op::Mixture { .. } | Op::Linear { .. }] => end - 1..end,
            [.., Op::Linear { product, .. }, Op::Scale { x, .. }] if product.out == *x && once(*x) => end - 2..end,
            _ => return None,
        };
        // What is added to must be there before.
        let there = !ops[made.start..at].iter().any(|op| op.outputs().contains(&stream));
        (once(both) && once(first) && there).then_some(Self { stream, first, both, scale, out, made })
    }

    /// Makes it so; op `at` is gone.
    fn apart(self, ops: &mut Vec<Op>, layers: &mut Vec<Option<usize>>, at: usize) {
        match &mut ops[at - 1] {
            Op::LinearAdd { residual: x, scale, out, .. } | Op::Add { x, scale, out, .. } => {
                (*x, *scale, *out) = (self.both, *scale * self.scale, self.out);
            }
            _ => {}
        }
        ops.remove(at);
        layers.remove(at);
        let Self { stream, first, both, scale, made, .. } = self;
        let factor = match &ops[made.end - 1] {
            Op::Scale { scale: factor, .. } => *factor,
            _ => 1.0,
        };
        match ops[made.start] {
            Op::Linear { x, product } => {
                let (weight, bias) = (product.weight, product.bias);
                let scale = scale * factor;
                ops[made.start] = Op::LinearAdd { x, weight, bias, residual: stream, scale, out: both };
                ops.drain(made.start + 1..made.end);
                layers.drain(made.start + 1..made.end);
            }
            _ => {
                ops.insert(made.end, Op::Add { x: stream, y: first, scale, out: both });
                layers.insert(made.end, layers[made.start]);
            }
        }
    }
}
