//! The short causal convolution in front of a recurrence, or of queries, keys and values at once, for a token and for blocks of
//! rows.

#[cfg(test)]
mod test;

use crate::{
    Result,
    compile::{Ctx, View, row},
    kernels::Binds,
    lower::Conv,
    table::{Count, Each, Grid, Of, Ref, Row},
};

/// The most that a dispatch takes.
const MOST: usize = 4;

/// One dispatch for `convs`, whose inputs lie in one place, as their results do.
pub(super) fn emit(ctx: &mut Ctx<'_, '_>, convs: &[Conv]) -> Result<()> {
    let views = |ctx: &Ctx<'_, '_>, of: &dyn Fn(&Conv) -> _| -> Result<Vec<View>> {
        convs.iter().map(|conv| ctx.view(of(conv))).collect()
    };
    let (xs, outs) = (views(ctx, &|conv| conv.x)?, views(ctx, &|conv| conv.out)?);
    let taps = ctx.needed.shape(convs[0].weight).last().copied().unwrap_or(1);
    let rows = taps.saturating_sub(1).max(8);
    let filters = convs.iter().zip(&xs).map(|(conv, x)| (Some(conv.weight), x.width * taps));
    let biases = convs.iter().zip(&xs).map(|(conv, x)| (conv.bias, x.width));
    let weights = ctx.vector_of(&filters.chain(biases).collect::<Vec<_>>(), false);
    let mut binds = Binds::new(ctx.defines());
    binds.set("TAPS", format!("{taps}u"));
    binds.set("ROWS", format!("{rows}u"));
    binds.set("CONVS", convs.len());
    binds.read("X", xs[0].of());
    binds.read("WEIGHT", Ref::Vector(weights));
    binds.write("OUT", outs[0].of());
    let all: usize = xs.iter().map(|x| x.width).sum();
    let each =
        |of: &dyn Fn(usize) -> usize| (0..MOST).map(|i| if i < convs.len() { of(i) } else { 0 } as u32).collect();
    let of_each: [Vec<u32>; 3] = [each(&|i| xs[i].width), each(&|i| xs[i].offset), each(&|i| outs[i].offset)];
    let sizes = [all, xs[0].stride, outs[0].stride, usize::from(convs[0].silu)].map(|size| size as u32);
    let params = [&of_each.concat()[..], &sizes].concat();
    let grid = Grid::Block([Count::fixed(all.div_ceil(64)), Count::new(1, Of::Own, rows), Count::fixed(1)]);
    let made = row("convolution", "kernels/conv/conv.wgsl", binds.defines);
    let (slot, more_slots) = (Some(convs[0].state), convs[1..].iter().map(|conv| conv.state).collect());
    ctx.push(Row { params, bindings: binds.list, slot, more_slots, each: Each::Sequence, grid, ..made });
    Ok(())
}
