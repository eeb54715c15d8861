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
    quant::Format,
    table::{Count, Grid, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;
/// Workgroups at most: enough to fill any card, few enough that each makes its input once for many rows.
const WORKGROUPS: usize = 512;

/// How the input gets to where products read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// Rounded to 8 bits in workgroup memory.
    Bytes,
    /// In f32 in workgroup memory, four values at once.
    Quads,
    /// In f32 in workgroup memory.
    Floats,
    /// It lies in a buffer, rounded to 8 bits.
    Rounded,
    /// It lies in a buffer, in f32, and is plain.
    Before,
}

impl Made {
    /// For an input of `cols` values and a kernel that needs `more` bytes of workgroup memory beside it.
    pub(crate) fn of(ctx: &Ctx<'_, '_>, format: Format, input: &Input, cols: usize, more: usize) -> Self {
        let groups = cols.div_ceil(32);
        let room = ctx.target.limits.workgroup_memory as usize;
        let whole_norm = input.norm.is_none_or(|norm| norm.group == cols);
        let bytes = 48 * groups.next_power_of_two() + 12 * THREADS + more;
        let rounded = ctx.target.flavours.packed_dot && !ctx.target.exact && !format.is_float();
        if rounded && whole_norm && bytes <= room {
            return Made::Bytes;
        }
        // Nine quads for eight keep neighbours out of each other's banks.
        let floats = 16 * 9 * groups.next_power_of_two() + 4 * THREADS + more;
        match floats <= room {
            true if whole_norm && cols.is_multiple_of(4) => Made::Quads,
            true => Made::Floats,
            false => Made::Before,
        }
    }

    /// What `lanes.wgsl` is told.
    pub(crate) fn define(self, binds: &mut Binds, cols: usize) {
        if !matches!(self, Made::Before | Made::Rounded) {
            binds.set("MAKES_INPUT", 1);
            binds.set("ROOM", format!("{}u", cols.div_ceil(32).next_power_of_two()));
        }
        if matches!(self, Made::Bytes | Made::Quads) {
            binds.set("EACH", format!("{}u", (8 * cols.div_ceil(32)).div_ceil(THREADS)));
        }
        match self {
            Made::Bytes => binds.set("DOT8", 1),
            Made::Quads => binds.set("QUADS", 1),
            Made::Rounded => {
                binds.set("DOT8", 1);
                binds.set("ROUNDED_X", 1);
            }
            Made::Floats | Made::Before => {}
        }
    }
}

/// Inputs of products' own, all in a run of values.
pub(super) struct Own {
    /// Values from the first to the last.
    pub cols: usize,
    /// The first row of each product.
    pub starts: [usize; 4],
    /// Values in front of its input.
    pub offsets: [usize; 4],
}

/// The dispatches. The input is that of every row of the matrix, or has the `own` inputs of its products in it.
pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    together: &Together,
    then: &Epilogue,
    own: Option<&Own>,
) -> Result<()> {
    let matrix = ctx.needed.get(together.matrix).clone();
    let cols = own.map_or(matrix.cols, |own| own.cols);
    let groups = cols.div_ceil(32);
    let made = if ctx.is_rounded(input.x) && input.is_plain() {
        Made::Rounded
    } else {
        Made::of(ctx, matrix.format, input, cols, 0)
    };
    let apart = made == Made::Before && !input.is_plain();
    if apart {
        let of = ctx.scratch(1, 4 * cols.next_multiple_of(32) as u64);
        let target = Target { of, offset: 0, stride: cols };
        rows::emit_to(ctx, input, None, target, together.out.rows)?;
    }
    let lanes = lanes(parts(matrix.format, matrix.cols), ctx.target.flavours.subgroup);
    let per_pass = 2 * THREADS / lanes;
    for (chunk, rows) in matrix.chunks.iter().enumerate() {
        let mut binds = Binds::new(ctx.defines());
        let (other, factor) = bind_epilogue(&mut binds, together, then);
        let c = if apart {
            binds.read("X", Ref::Scratch(1));
            None
        } else {
            Some(input::bind(ctx, &mut binds, input)?)
        };
        binds.matrix(&matrix, together.matrix, chunk);
        binds.set("LANES", format!("{lanes}u"));
        made.define(&mut binds, cols);
        let round = matches!(then, Epilogue::Glu { rounded: true, .. });
        if round {
            binds.set("ROUND", 1);
        }
        let unit = if round { per_pass.max(64) } else { per_pass };
        let per_group = rows.len().div_ceil(WORKGROUPS).next_multiple_of(unit);
        let words = [
            cols,
            groups,
            rows.start,
            rows.len(),
            matrix.row_words,
            per_group,
            c.as_ref().map_or(0, |c| c.x.offset),
            together.out.offset,
            c.as_ref().map_or(1, |c| c.group),
        ]
        .map(|word| word as u32);
        let of_input = match &c {
            Some(c) => {
                [c.before[0], c.after[0], c.eps.to_bits(), c.scale.to_bits(), c.before_c.to_bits(), c.after_c.to_bits()]
            }
            None => [0, 0, 0, 1.0f32.to_bits(), 0, 0],
        };
        let mut params = [&words[..], &of_input[..], &[other[0], factor.to_bits()]].concat();
        if let Some(own) = own {
            binds.set("OWN_INPUTS", 1);
            params.push(matrix.cols as u32);
            params.resize(params.len().next_multiple_of(4), 0);
            params.extend(own.starts.map(|start| start as u32));
            params.extend(own.offsets.map(|offset| offset as u32 / 4));
        }
        let count = Count::new(rows.len().div_ceil(per_group), together.out.count(), 1);
        let made = row("product with a row", "kernels/product/token.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid: Grid::Line(count), ..made });
    }
    Ok(())
}

/// Parts of a row: what an invocation unpacks at once.
pub(crate) fn parts(format: Format, cols: usize) -> usize {
    cols.div_ceil(if format.is_float() { 8 } else { 32 })
}

/// Invocations that go down one row: many, since a row of a small matrix is waited for rather than read, but no more than
/// there are parts of it.
pub(crate) fn lanes(parts: usize, subgroup: Option<u32>) -> usize {
    let most = subgroup.map_or(32, |size| (size as usize).min(32));
    parts.next_power_of_two().clamp(4, most.max(4))
}
