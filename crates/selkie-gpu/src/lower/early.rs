//! Sums where their summands are made.

use std::collections::HashMap;

use selkie_model::plan::{BufferId, Op, Plan};

/// The ops, but for sums of a mixture and the block beside it: `x + scale · (y + shared)` becomes `(x + scale · y) + scale ·
/// shared`, each sum where its summand is made.
pub(super) fn sum_early(plan: &Plan, reads: &HashMap<BufferId, usize>) -> Vec<Op> {
    let mut ops = plan.ops.clone();
    let mut mixtures = HashMap::new();
    let once = |id: BufferId| reads.get(&id) == Some(&1);
    for at in 1..ops.len() {
        if let Op::Mixture { out, .. } = ops[at - 1] {
            mixtures.insert(out, at - 1);
        }
        let Op::Add { x: stream, y: both, scale, out: to } = ops[at] else { continue };
        let y = match &ops[at - 1] {
            Op::LinearAdd { residual: y, scale: 1.0, out, .. } if *out == both => *y,
            Op::Add { x: y, scale: 1.0, out, .. } if *out == both => *y,
            _ => continue,
        };
        let Some(&mixture) = mixtures.get(&y) else { continue };
        // What is added to must be there before the mixture is.
        let there = !ops[mixture..at].iter().any(|op| op.outputs().contains(&stream));
        if !once(both) || !once(y) || !there {
            continue;
        }
        match &mut ops[at - 1] {
            Op::LinearAdd { residual: x, scale: factor, out, .. } | Op::Add { x, scale: factor, out, .. } => {
                (*x, *factor, *out) = (both, scale, to);
            }
            _ => {}
        }
        // As many ops as before, all of one layer.
        ops.remove(at);
        ops.insert(mixture + 1, Op::Add { x: stream, y, scale, out: both });
    }
    ops
}
