//! Products with one row.

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::{
        Binds,
        input::{self, Target},
        product::{Epilogue, Together, bind_epilogue},
        rows,
    },
    lower::Input,
    table::{Count, Grid, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;
/// Workgroups at most: enough to fill any card, few enough that each makes its input once for many rows.
const WORKGROUPS: usize = 1024;

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, input: &Input, together: &Together, then: &Epilogue) -> Result<()> {
    let matrix = ctx.needed.get(together.matrix).clone();
    let groups = matrix.cols.div_ceil(32);
    // Nine quads for eight keep neighbours out of each other's banks.
    let shared = 16 * 9 * groups + 4 * THREADS + 64;
    let fits = shared <= ctx.target.limits.workgroup_memory as usize;
    let made_before = !fits && !input.is_plain();
    let lanes = lanes(groups, ctx.target.flavours.subgroup);
    let per_pass = THREADS / lanes;
    let glu = matches!(then, Epilogue::Glu { .. });
    for (chunk, rows) in matrix.chunks.iter().enumerate() {
        let mut binds = Binds::new(ctx.defines());
        let (other, factor) = bind_epilogue(&mut binds, together, then);
        let c = if made_before && chunk == 0 {
            let of = ctx.scratch(1, 4 * (matrix.cols.next_multiple_of(32)) as u64);
            let target = Target { of, offset: 0, stride: matrix.cols };
            rows::emit_to(ctx, input, None, target, together.out.rows)?;
            None
        } else if made_before {
            None
        } else {
            Some(input::bind(ctx, &mut binds, input)?)
        };
        if c.is_none() {
            binds.read("X", Ref::Scratch(1));
        }
        binds.matrix(&matrix, together.matrix, chunk);
        binds.set("LANES", lanes);
        binds.set("GROUPS", groups);
        binds.set("COLS", matrix.cols);
        if fits {
            binds.set("SHARED_X", 1);
        }
        let x = c.as_ref().map_or((0, 0), |c| (c.x.offset, c.x.stride));
        let per_group = rows.len().div_ceil(WORKGROUPS).next_multiple_of(if glu { 2 * per_pass } else { per_pass });
        let words = [
            rows.start,
            rows.len(),
            matrix.row_words,
            per_group,
            x.0,
            together.out.offset,
            c.as_ref().map_or(1, |c| c.group),
        ]
        .map(|word| word as u32);
        let more = match &c {
            Some(c) => [
                c.before[0],
                c.after[0],
                c.whole_weight,
                c.eps.to_bits(),
                c.scale.to_bits(),
                c.before_c.to_bits(),
                c.after_c.to_bits(),
            ],
            None => [0, 0, 0, 0, 1.0f32.to_bits(), 0, 0],
        };
        let params = [&words[..], &more[..], &[other[0], factor.to_bits()]].concat();
        let count = Count::new(rows.len().div_ceil(per_group), together.out.count(), 1);
        let made = row("product with a row", "kernels/product/token.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid: Grid::Line(count), ..made });
    }
    Ok(())
}

/// Invocations that go down one row: no more than there are groups in it, and none that would idle much.
pub(crate) fn lanes(groups: usize, subgroup: Option<u32>) -> usize {
    let most = subgroup.map_or(32, |size| (size as usize).min(32));
    let mut lanes = most;
    while lanes > 4 && groups <= lanes / 2 {
        lanes /= 2;
    }
    lanes.min(most)
}
