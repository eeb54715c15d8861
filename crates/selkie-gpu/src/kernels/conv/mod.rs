//! The short causal convolution in front of a recurrence, for a token and for blocks of rows.

#[cfg(test)]
mod test;

use selkie_model::{
    WeightId,
    plan::{BufferId, SlotId},
};

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::Binds,
    table::{Count, Each, Grid, Of, Ref, Row},
};

pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    x: BufferId,
    (weight, bias): (WeightId, Option<WeightId>),
    silu: bool,
    state: SlotId,
    out: BufferId,
) -> Result<()> {
    let (x, out) = (ctx.view(x)?, ctx.view(out)?);
    let channels = x.width;
    let taps = ctx.needed.shape(weight).last().copied().unwrap_or(1);
    let rows = taps.saturating_sub(1).max(8);
    let weights = ctx.vector_of(&[(Some(weight), channels * taps), (bias, channels)], false);
    let mut binds = Binds::new(ctx.defines());
    binds.set("TAPS", format!("{taps}u"));
    binds.set("ROWS", format!("{rows}u"));
    binds.read("X", x.of());
    binds.read("WEIGHT", Ref::Vector(weights));
    binds.write("OUT", out.of());
    let sizes = [channels, x.offset, x.stride, out.offset, out.stride, usize::from(silu)];
    let params = sizes.map(|size| size as u32).to_vec();
    let grid = Grid::Block([Count::fixed(channels.div_ceil(64)), Count::new(1, Of::Own, rows), Count::fixed(1)]);
    let made = row("convolution", "kernels/conv/conv.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, slot: Some(state), each: Each::Sequence, grid, ..made });
    Ok(())
}
