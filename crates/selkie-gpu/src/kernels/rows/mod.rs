//! Norms, gates, scales and sums that stand alone: `out = residual + scale · input`.

#[cfg(test)]
mod test;

use selkie_model::plan::{BufferId, Rows};

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::{
        Binds,
        input::{self, Target},
    },
    lower::Input,
    table::{Count, Grid, Of, Row},
};

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, input: &Input, add: Option<(BufferId, f32)>, out: BufferId) -> Result<()> {
    let out = ctx.view(out)?;
    emit_to(ctx, input, add, out.into(), out.rows)
}

/// As [`emit`], to where `out` says.
pub(super) fn emit_to(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    add: Option<(BufferId, f32)>,
    out: Target,
    rows: Rows,
) -> Result<()> {
    let mut binds = Binds::new(ctx.defines());
    binds.write("OUT", out.of);
    let c = input::bind(ctx, &mut binds, input)?;
    let (mut residual, mut add_scale) = ([0, 0], 1.0);
    if let Some((id, scale)) = add {
        let view = ctx.view(id)?;
        add_scale = scale;
        binds.set("ADD", 1);
        if view.of() != out.of {
            residual = [view.offset as u32, view.stride as u32];
            binds.read("RESIDUAL", view.of());
        }
    }
    let (word, of) = match rows {
        Rows::All => ("rows", Of::Rows),
        Rows::Outputs => ("outputs", Of::Outputs),
    };
    binds.set("ROWS", word);
    let width = c.width;
    let each = if input.norm.is_some() { width / c.group } else { width.div_ceil(128) };
    let params = vec![
        width as u32,
        c.group as u32,
        c.x.offset as u32,
        c.x.stride as u32,
        c.before[0],
        c.before[1],
        c.after[0],
        c.after[1],
        residual[0],
        residual[1],
        out.offset as u32,
        out.stride as u32,
        c.eps.to_bits(),
        c.scale.to_bits(),
        add_scale.to_bits(),
        c.before_c.to_bits(),
        c.after_c.to_bits(),
    ];
    let grid = Grid::Line(Count::new(each, of, 1));
    ctx.push(Row { params, bindings: binds.list, grid, ..row("rows", "kernels/rows/rows.wgsl", binds.defines) });
    Ok(())
}
