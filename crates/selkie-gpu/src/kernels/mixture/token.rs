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
const WORKGROUPS: usize = 1024;

/// Where the chosen experts, their weights and what they make lie, in values.
struct Hidden {
    of: Ref,
    offset: usize,
    stride: usize,
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
    let offset = (2 * m.n_used).next_multiple_of(4);
    let stride = m.d_ff.next_multiple_of(8);
    let bytes = 4 * (offset + m.n_used * stride) as u64;
    let hidden = Hidden { of: ctx.scratch(scratch::HIDDEN, bytes), offset, stride };
    let mut first = true;
    for wide in wide(ctx, m)? {
        let of = if wide.stage == "gates" { ctx.scratch(scratch::GATES, bytes) } else { hidden.of };
        let target = Hidden { of, ..hidden };
        let gates = (wide.stage == "gated").then_some(Ref::Scratch(scratch::GATES));
        let mut before = None;
        for part in &wide.parts {
            // Every buffer of hidden values has the experts in front; the last product reads those of the first.
            let up = Up { m, wide: &wide, part, target: &target, gates, scores, small: &small };
            up.emit(ctx, input, &mut before, out, first || wide.stage == "gated")?;
            first = false;
        }
    }
    down(ctx, m, &hidden, add, out)
}

/// A dispatch of the first products.
struct Up<'a> {
    m: &'a Mixture,
    wide: &'a Wide,
    part: &'a Part,
    target: &'a Hidden,
    gates: Option<Ref>,
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
        let beside = 16 * m.n_experts.div_ceil(4) + 4 * (m.n_used + expert_groups);
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
            binds.read("GATES", gates);
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
        let per_group = (m.n_used * expert_rows).div_ceil(WORKGROUPS).next_multiple_of(2 * THREADS / lanes);
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
        let target = [u32::from(write_routes), self.target.offset as u32, self.target.stride as u32];
        let scale = [m.routing.scale.to_bits()];
        let params = [&sizes[..], &of_input, &target, &gating, &scale].concat();
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

/// Quads that an invocation holds at most while it rounds an input.
const MOST_EACH: usize = 16;

/// The last products. Each dispatch adds the experts that are in its part.
fn down(ctx: &mut Ctx<'_, '_>, m: &Mixture, hidden: &Hidden, add: Option<(View, f32)>, out: View) -> Result<()> {
    let d_model = out.width;
    let cols = m.n_used * hidden.stride;
    for (at, part) in stack(ctx, m.down, d_model)?.into_iter().enumerate() {
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
        let plain = Input::plain(ctx.plan.hidden);
        let made = match Made::of(ctx, matrix.format, &plain, cols, 8 * m.n_used) {
            Made::Bytes if cols.div_ceil(4 * THREADS) <= MOST_EACH => Made::Bytes,
            // In f32 it is read where it lies.
            _ => Made::Before,
        };
        made.define(&mut binds, cols);
        let parts_of = |cols: usize| parts(matrix.format, cols);
        let lanes = lanes(m.n_used * parts_of(m.d_ff), ctx.target.flavours.subgroup);
        binds.set("LANES", format!("{lanes}u"));
        binds.set("USED", format!("{}u", m.n_used));
        let per_group = d_model.div_ceil(WORKGROUPS).next_multiple_of(2 * THREADS / lanes);
        let sizes = [
            cols,
            cols.div_ceil(32),
            part.first,
            part.rows,
            matrix.row_words,
            per_group,
            d_model,
            m.d_ff,
            hidden.offset,
            parts_of(hidden.stride),
            out.offset,
            residual,
        ]
        .map(|size| size as u32);
        let params = [&sizes[..], &[scale.to_bits(), 1.0f32.to_bits()]].concat();
        let grid = Grid::Line(Count::new(d_model.div_ceil(per_group), out.count(), 1));
        let made = row("experts' sum of a row", "kernels/mixture/token_down.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, grid, ..made });
    }
    Ok(())
}
