//! Rotary embeddings that stand alone.

use selkie_model::{plan::BufferId, rope::Pairing};

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::Binds,
    table::{Count, Grid, Of, Ref, Row},
};

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, x: BufferId, rope: usize, head_dim: usize, out: BufferId) -> Result<()> {
    let (x, out) = (ctx.view(x)?, ctx.view(out)?);
    let mut binds = Binds::new(ctx.defines());
    binds.read("X", x.of());
    binds.read("ANGLES", Ref::Angles(rope));
    binds.write("OUT", out.of());
    let spec = &ctx.spec.ropes[rope];
    if spec.pairing == Pairing::Interleaved {
        binds.set("INTERLEAVED", 1);
    }
    let sizes = [x.width, head_dim, spec.n_dims / 2, x.offset, x.stride, out.offset, out.stride];
    let params = sizes.map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::new(x.width.div_ceil(128), Of::Rows, 1));
    ctx.push(Row { params, bindings: binds.list, grid, ..row("rope", "kernels/rope/rope.wgsl", binds.defines) });
    Ok(())
}
