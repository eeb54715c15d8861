//! Rows of the embedding.

use selkie_model::{WeightId, plan::BufferId};

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::{Binds, product::matrices},
    table::{Count, Grid, Of, Ref, Row},
};

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, table: WeightId, scale: f32, out: BufferId) -> Result<()> {
    let out = ctx.view(out)?;
    let mut first = 0;
    for id in matrices(ctx, &[table], false)? {
        let matrix = ctx.needed.get(id).clone();
        for (chunk, rows) in matrix.chunks.iter().enumerate() {
            let mut binds = Binds::new(ctx.defines());
            binds.read("IDS", Ref::Ids);
            binds.matrix(&matrix, id, chunk);
            binds.write("OUT", out.of());
            let sizes =
                [out.width, matrix.row_words, first + rows.start, rows.len(), out.offset, out.stride].map(|s| s as u32);
            let params = [&sizes[..], &[scale.to_bits()]].concat();
            let grid = Grid::Line(Count::new(out.width.div_ceil(32 * 32), Of::Rows, 1));
            let made = row("embed", "kernels/embed/embed.wgsl", binds.defines);
            ctx.push(Row { params, bindings: binds.list, grid, ..made });
        }
        first += matrix.rows;
    }
    Ok(())
}
