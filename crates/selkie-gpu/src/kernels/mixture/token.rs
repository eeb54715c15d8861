//! A mixture for one row.

use selkie_model::spec::Mixture;

use super::{Part, Small, Wide, bind_gating, down_bias, route_defines, scores, scratch, stack, wide};
use crate::{
    Result,
    compile::{Ctx, View, row},
    kernels::{
        Binds,
        input::{self, Target},
        product::{Made, lanes, parts},
        rows,
    },
    lower::{Gate, Input},
    table::{Count, Grid, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;
/// Workgroups at most, as of a product.
const WORKGROUPS: usize = 512;

/// Where the chosen experts, their weights and what they make lie, in words.
#[derive(Clone, Copy)]
struct Hidden {
    of: Ref,
    offset: usize,
    stride: usize,
    /// Whether what they make is rounded to 8 bits, in groups of 32.
    rounded: bool,
}

pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    m: &Mixture,
    add: Option<(View, f32)>,
    out: View,
) -> Result<()> {
    let (scores, _) = scores(ctx, input, m, out.rows)?;
    let small = Small::new(ctx, m);
    let wides = wide(ctx, m)?;
    let downs = stack(ctx, m.down, out.width)?;
    let offset = (2 * m.n_used).next_multiple_of(4);
    let rounded = rounds(ctx, m, &wides, &downs);
    let floats = m.d_ff.next_multiple_of(8);
    let stride = if rounded { m.d_ff / 32 * 12 } else { floats };
    let bytes = |stride: usize| 4 * (offset + m.n_used * stride) as u64;
    let of = ctx.scratch(scratch::HIDDEN, bytes(stride));
    let hidden = Hidden { of, offset, stride, rounded };
    let gates = Hidden { of: Ref::Scratch(scratch::GATES), offset, stride: floats, rounded: false };
    let mut first = true;
    for wide in &wides {
        let target = if wide.stage == "gates" { gates } else { hidden };
        if wide.stage == "gates" {
            ctx.scratch(scratch::GATES, bytes(floats));
        }
        let gates = (wide.stage == "gated").then_some(gates);
        let mut before = None;
        for part in &wide.parts {
            // Every buffer of hidden values has the experts in front; the last product reads those of the last.
            let up = Up { m, wide, part, target: &target, gates, scores, small: &small };
            up.emit(ctx, input, &mut before, out, first || wide.stage == "gated")?;
            first = false;
        }
    }
    down(ctx, m, &hidden, &downs, add, out)
}

/// Whether what the experts make is rounded once for all who read it: where it may be, and no expert is cut.
fn rounds(ctx: &Ctx<'_, '_>, m: &Mixture, wides: &[Wide], downs: &[Part]) -> bool {
    let allowed = ctx.target.flavours.packed_dot && !ctx.target.exact && m.d_ff.is_multiple_of(32);
    let blocks = downs.iter().all(|part| !ctx.needed.get(part.matrix).format.is_float());
    let whole = |wide: &Wide| {
        let cut = |part: &Part| part.first % wide.expert_rows != 0 || part.rows % wide.expert_rows != 0;
        !wide.parts.iter().any(cut)
    };
    allowed && blocks && wides.last().is_some_and(whole)
}

/// A dispatch of the first products.
struct Up<'a> {
    m: &'a Mixture,
    wide: &'a Wide,
    part: &'a Part,
    target: &'a Hidden,
    gates: Option<Hidden>,
    scores: Ref,
    small: &'a Small,
}

impl Up<'_> {
    /// Where the input does not fit into workgroup memory, or has too many parts, it is made before, into `before`.
    fn emit(
        &self,
        ctx: &mut Ctx<'_, '_>,
        input: &Input,
        before: &mut Option<Ref>,
        out: View,
        write_routes: bool,
    ) -> Result<()> {
        let (m, part) = (self.m, self.part);
        let matrix = ctx.needed.get(part.matrix).clone();
        let expert_groups = m.routing.groups.map_or(0, |groups| groups.n_groups);
        let rounding = if self.target.rounded { 10 * THREADS } else { 0 };
        let beside = 16 * m.n_experts.div_ceil(4) + 4 * (m.n_used + expert_groups) + rounding;
        let mut made = Made::of(ctx, matrix.format, input, matrix.cols, beside);
        let more = [self.small.of.is_some(), self.gates.is_some(), matrix.format.needs_grids()];
        let buffers = 4 + more.into_iter().filter(|&more| more).count() + bindings(input);
        if buffers > ctx.target.limits.storage_buffers as usize {
            made = Made::Before;
        }
        if made == Made::Before && !input.is_plain() && before.is_none() {
            let of = ctx.scratch(scratch::INPUT, 4 * matrix.cols.next_multiple_of(32) as u64);
            rows::emit_to(ctx, input, None, Target { of, offset: 0, stride: matrix.cols }, out.rows)?;
            *before = Some(of);
        }
        let mut binds = Binds::new(ctx.defines());
        binds.write("HIDDEN", self.target.of);
        binds.read("SCORES", self.scores);
        if let Some(small) = self.small.of {
            binds.read("SMALL", small);
        }
        if let Some(gates) = self.gates {
            binds.read("GATES", gates.of);
        }
        if self.target.rounded {
            binds.set("ROUND", 1);
        }
        let c = match *before {
            Some(before) => {
                binds.read("X", before);
                made = Made::Before;
                None
            }
            None => Some(input::bind(ctx, &mut binds, input)?),
        };
        binds.matrix(&matrix, part.matrix, part.chunk);
        let gating = bind_gating(&mut binds, m, self.small);
        route_defines(&mut binds, m);
        binds.set("STAGE", self.wide.stage);
        let lanes = lanes(parts(matrix.format, matrix.cols), ctx.target.flavours.subgroup);
        binds.set("LANES", format!("{lanes}u"));
        made.define(&mut binds, matrix.cols);
        let expert_rows = self.wide.expert_rows;
        let per_pass = 2 * THREADS / lanes;
        // Groups of 32 values are of one workgroup where they are rounded.
        let group_rows = if self.wide.stage == "pairs" { 64 } else { 32 };
        let unit = if self.target.rounded { per_pass.max(group_rows) } else { per_pass };
        let per_group = (m.n_used * expert_rows).div_ceil(WORKGROUPS).next_multiple_of(unit);
        let per_slot = expert_rows.div_ceil(per_group);
        let groups = matrix.cols.div_ceil(32);
        let sizes = [matrix.cols, groups, part.first, part.rows, matrix.row_words, expert_rows, per_group, per_slot]
            .map(|s| s as u32);
        let of_input = match &c {
            Some(c) => [
                c.x.offset as u32,
                c.group as u32,
                c.before[0],
                c.after[0],
                c.eps.to_bits(),
                c.scale.to_bits(),
                c.before_c.to_bits(),
                c.after_c.to_bits(),
            ],
            None => [0, 1, 0, 0, 0, 1.0f32.to_bits(), 0, 0],
        };
        let gates = self.gates.map_or([0, 0], |gates| [gates.offset, gates.stride]).map(|word| word as u32);
        let hidden = [u32::from(write_routes), self.target.offset as u32, self.target.stride as u32];
        let scale = [m.routing.scale.to_bits()];
        let params = [&sizes[..], &of_input, &hidden, &gates, &gating, &scale].concat();
        let grid = Grid::Line(Count::new(1 + m.n_used * per_slot, out.count(), 1));
        let made = row("experts of a row", "kernels/mixture/token_up.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid, ..made });
        Ok(())
    }
}

/// Buffers that an input binds.
fn bindings(input: &Input) -> usize {
    let by = |gate: Option<Gate>| usize::from(matches!(gate, Some(Gate::By(..) | Gate::RowBy(..))));
    let norm = input.norm.is_some_and(|norm| norm.weight.is_some());
    1 + by(input.before) + by(input.after) + usize::from(norm)
}

/// The last products. Each dispatch adds the experts that are in its part.
fn down(
    ctx: &mut Ctx<'_, '_>,
    m: &Mixture,
    hidden: &Hidden,
    downs: &[Part],
    add: Option<(View, f32)>,
    out: View,
) -> Result<()> {
    let d_model = out.width;
    // Either way it is read where it lies.
    let made = if hidden.rounded { Made::Rounded } else { Made::Before };
    for (at, part) in downs.iter().enumerate() {
        let matrix = ctx.needed.get(part.matrix).clone();
        let mut binds = Binds::new(ctx.defines());
        binds.write("OUT", out.of());
        binds.read("X", hidden.of);
        let (mut residual, mut scale) = (0, 1.0);
        if let Some((view, factor)) = add {
            scale = factor;
            if at == 0 {
                binds.read("RESIDUAL", view.of());
                residual = view.offset;
            }
        }
        if at > 0 {
            binds.set("OVER", 1);
        }
        if let Some(bias) = down_bias(ctx, m) {
            binds.read("BIAS", bias);
        }
        binds.matrix(&matrix, part.matrix, part.chunk);
        made.define(&mut binds, m.d_ff);
        let parts_of = |cols: usize| parts(matrix.format, cols);
        let lanes = lanes(m.n_used * parts_of(m.d_ff), ctx.target.flavours.subgroup);
        binds.set("LANES", format!("{lanes}u"));
        binds.set("USED", format!("{}u", m.n_used));
        let per_group = d_model.div_ceil(WORKGROUPS).next_multiple_of(2 * THREADS / lanes);
        let sizes = [
            part.first,
            part.rows,
            matrix.row_words,
            per_group,
            d_model,
            m.d_ff,
            hidden.offset,
            parts_of(if hidden.rounded { m.d_ff } else { hidden.stride }),
            out.offset,
            residual,
        ]
        .map(|size| size as u32);
        let params = [&sizes[..], &[scale.to_bits()]].concat();
        let grid = Grid::Line(Count::new(d_model.div_ceil(per_group), out.count(), 1));
        let made = row("experts' sum of a row", "kernels/mixture/token_down.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid, ..made });
    }
    Ok(())
}
