//! Products with blocks of rows.

use std::ops::Range;

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
/// Rows and columns of a tile of products in half precision.
const HALF_TILE: usize = 128;
/// Workgroup memory that these need.
const HALF_BYTES: u32 = 2 * 128 * 18 * 8 + 4 * 2048;

/// `part`: the rows of the matrix that are multiplied.
pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    together: &Together,
    then: &Epilogue,
    part: &Range<usize>,
) -> Result<()> {
    let matrix = ctx.needed.get(together.matrix).clone();
    let x = ctx.view(input.x)?;
    let groups = matrix.cols.div_ceil(32);
    let flavours = ctx.target.flavours;
    // Few rows are read rather than multiplied.
    let halves = flavours.cooperative
        && flavours.subgroup == Some(32)
        && !ctx.target.exact
        && matrix.cols.is_multiple_of(32)
        && ctx.target.limits.workgroup_memory >= HALF_BYTES;
    for (chunk, rows) in matrix.chunks.iter().enumerate() {
        let (begin, end) = (part.start.max(rows.start), part.end.min(rows.end));
        if begin >= end {
            continue;
        }
        let n = end - begin;
        let mut binds = Binds::new(ctx.defines());
        let (other, factor) = bind_epilogue(&mut binds, together, then);
        binds.read("X", x.of());
        binds.matrix(&matrix, together.matrix, chunk);
        let of = together.out.count();
        binds.set("ROWS", if of == crate::table::Of::Rows { "rows" } else { "outputs" });
        let tail = [
            rows.start,
            end - rows.start,
            begin - rows.start,
            matrix.row_words,
            x.offset,
            x.stride,
            together.out.offset,
            together.out.stride,
        ]
        .map(|word| word as u32);
        if halves {
            let params = [&[groups as u32][..], &tail[..], &other[..], &[factor.to_bits()]].concat();
            let tiles =
                Grid::Block([Count::new(1, of, HALF_TILE), Count::fixed(n.div_ceil(HALF_TILE)), Count::fixed(1)]);
            let made = row("product of tiles", "kernels/product/tiles.wgsl", binds.defines);
            ctx.push(Row { params, bindings: binds.list, grid: tiles, ..made });
            continue;
        }
        let params = [&[matrix.cols as u32, groups as u32][..], &tail[..], &other[..], &[factor.to_bits()]].concat();
        let tiles = Grid::Block([Count::fixed(n.div_ceil(TILE)), Count::new(1, of, TILE), Count::fixed(1)]);
        let made = row("product with rows", "kernels/product/block.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid: tiles, ..made });
    }
    Ok(())
}
