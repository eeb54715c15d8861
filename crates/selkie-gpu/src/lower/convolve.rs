//! A token's convolutions, where products store what they are of.

use std::collections::HashMap;

use selkie_model::{
    Plan, WeightId,
    plan::{BufferId, Op, Slot, SlotId},
};

use super::{Lowered, Then};

/// The convolution of one product's sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolve {
    /// Which product; its `out` is what the convolution gives.
    pub which: usize,
    /// `[channels, taps]`, two taps at least.
    pub weight: WeightId,
    /// `[channels]`.
    pub bias: Option<WeightId>,
    /// Whether the result goes through SiLU.
    pub silu: bool,
    /// `[taps - 1, channels]`.
    pub state: SlotId,
}

/// Makes convolutions of products that nobody else reads part of those products: a channel is a row of the matrix, so whoever
/// has its sum is the only one to see its window.
pub(super) fn absorb(plan: &Plan, lowered: &mut Vec<(Lowered, Option<usize>)>) {
    let mut reads: HashMap<BufferId, usize> = HashMap::new();
    let all = lowered.iter().flat_map(|(op, _)| op.reads());
    all.chain([plan.hidden, plan.logits]).for_each(|id| *reads.entry(id).or_default() += 1);
    let mut made: HashMap<BufferId, (usize, usize)> = HashMap::new();
    let mut gone = vec![false; lowered.len()];
    for at in 0..lowered.len() {
        match &lowered[at].0 {
            // Gates would be one storage buffer too many.
            Lowered::Products { input, products, then: Then::Store } if input.reads().len() == 1 => {
                made.extend(products.iter().enumerate().map(|(which, product)| (product.out, (at, which))));
            }
            Lowered::Op(Op::CausalConv { x, weight, bias, silu, state, out }) => {
                let (weight, bias, silu, state, out) = (*weight, *bias, *silu, *state, *out);
                let several = matches!(plan.slots[state.0 as usize], Slot::Conv { taps, .. } if taps > 1);
                let Some((from, which)) = made.get(x).copied().filter(|_| several && reads.get(x) == Some(&1)) else {
                    continue;
                };
                if let Lowered::Products { products, then: then @ Then::Store, .. } = &mut lowered[from].0 {
                    products[which].out = out;
                    *then = Then::Convolve(Convolve { which, weight, bias, silu, state });
                    gone[at] = true;
                }
            }
            _ => {}
        }
    }
    let mut gone = gone.into_iter();
    lowered.retain(|_| gone.next() != Some(true));
}
