//! The rows whose output is wanted.

use selkie_model::plan::BufferId;

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::Binds,
    table::{Count, Grid, Of, Ref, Row},
};

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, x: BufferId, out: BufferId) -> Result<()> {
    let (x, out) = (ctx.view(x)?, ctx.view(out)?);
    let mut binds = Binds::new(ctx.defines());
    binds.read("X", x.of());
    binds.read("OUTPUTS", Ref::Outputs);
    binds.write("OUT", out.of());
    let params = [x.width, x.offset, x.stride, out.offset, out.stride].map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::new(x.width.div_ceil(128), Of::Outputs, 1));
    let made = row("take rows", "kernels/take_rows/take_rows.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, ..made });
    Ok(())
}
