//! Products with blocks of rows.

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::{
        Binds,
        product::{Epilogue, Together, bind_epilogue},
    },
    lower::Input,
    table::{Count, Grid, Row},
};

/// Rows and columns of a tile.
const TILE: usize = 64;

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, input: &Input, together: &Together, then: &Epilogue) -> Result<()> {
    let matrix = ctx.needed.get(together.matrix).clone();
    let x = ctx.view(input.x)?;
    let groups = matrix.cols.div_ceil(32);
    for (chunk, rows) in matrix.chunks.iter().enumerate() {
        let mut binds = Binds::new(ctx.defines());
        let (other, factor) = bind_epilogue(&mut binds, together, then);
        binds.read("X", x.of());
        binds.matrix(&matrix, together.matrix, chunk);
        let of = together.out.count();
        binds.set("ROWS", if of == crate::table::Of::Rows { "rows" } else { "outputs" });
        let words = [
            matrix.cols,
            groups,
            rows.start,
            rows.len(),
            matrix.row_words,
            x.offset,
            x.stride,
            together.out.offset,
            together.out.stride,
        ]
        .map(|word| word as u32);
        let params = [&words[..], &other[..], &[factor.to_bits()]].concat();
        let tiles = Grid::Block([
            Count::fixed(rows.len().div_ceil(TILE)),
            Count::new(1, of, TILE),
            Count::fixed(1),
        ]);
        let made = row("product with rows", "kernels/product/block.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid: tiles, ..made });
    }
    Ok(())
}
