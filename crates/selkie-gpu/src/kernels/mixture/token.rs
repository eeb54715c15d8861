//! A mixture for one row.

use selkie_model::spec::Mixture;

use super::{Part, Small, Wide, bind_gating, down_bias, route_defines, scores, scratch, stack, wide};
use crate::{
    Result,
    compile::{Ctx, View, row},
    kernels::{
        Binds,
        input::{self, Target},
        product::lanes,
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
    let stride = m.d_ff.next_multiple_of(4);
    // What reads groups of 32 may read past the last row.
    let bytes = 4 * (offset + m.n_used * stride + 32) as u64;
    let hidden = Hidden { of: ctx.scratch(scratch::HIDDEN, bytes), offset, stride };
    let mut first = true;
    for wide in wide(ctx, m)? {
        let of = if wide.stage == "gates" { ctx.scratch(scratch::GATES, bytes) } else { hidden.of };
        let target = Hidden { of, ..hidden };
        let gates = (wide.stage == "gated").then_some(Ref::Scratch(scratch::GATES));
        let mut made = None;
        for part in &wide.parts {
            // Every buffer of hidden values has the experts in front; the last product reads those of the first.
            let up = Up { m, wide: &wide, part, target: &target, gates, scores, small: &small };
            up.emit(ctx, input, &mut made, out, first || wide.stage == "gated")?;
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
    /// Where the input does not fit into workgroup memory, or has too many parts, it is made before, into `made`.
    fn emit(
        &self,
        ctx: &mut Ctx<'_, '_>,
        input: &Input,
        made: &mut Option<Ref>,
        out: View,
        write_routes: bool,
    ) -> Result<()> {
        let (m, part) = (self.m, self.part);
        let matrix = ctx.needed.get(part.matrix).clone();
        let groups = matrix.cols.div_ceil(32);
        let expert_groups = m.routing.groups.map_or(0, |groups| groups.n_groups);
        let shared = 16 * 9 * groups + 4 * THREADS + 16 * m.n_experts.div_ceil(4) + 4 * (m.n_used + expert_groups) + 64;
        let more = [self.small.of.is_some(), self.gates.is_some(), matrix.format.needs_grids()];
        let buffers = 4 + more.into_iter().filter(|&more| more).count() + bindings(input);
        let limits = ctx.target.limits;
        let fits = shared <= limits.workgroup_memory as usize && buffers <= limits.storage_buffers as usize;
        if !fits && !input.is_plain() && made.is_none() {
            let of = ctx.scratch(scratch::INPUT, 4 * matrix.cols.next_multiple_of(32) as u64);
            rows::emit_to(ctx, input, None, Target { of, offset: 0, stride: matrix.cols }, out.rows)?;
            *made = Some(of);
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
        let c = match *made {
            Some(made) => {
                binds.read("X", made);
                None
            }
            None => Some(input::bind(ctx, &mut binds, input)?),
        };
        binds.matrix(&matrix, part.matrix, part.chunk);
        let gating = bind_gating(&mut binds, m, self.small);
        route_defines(&mut binds, m);
        binds.set("STAGE", self.wide.stage);
        let lanes = lanes(groups, ctx.target.flavours.subgroup);
        binds.set("LANES", lanes);
        binds.set("GROUPS", groups);
        binds.set("COLS", matrix.cols);
        if fits {
            binds.set("SHARED_X", 1);
        }
        let expert_rows = self.wide.expert_rows;
        let per_pass = THREADS / lanes * if self.wide.stage == "pairs" { 2 } else { 1 };
        let per_group = (m.n_used * expert_rows).div_ceil(WORKGROUPS).next_multiple_of(per_pass);
        let per_slot = expert_rows.div_ceil(per_group);
        let sizes = [part.first, part.rows, matrix.row_words, expert_rows, per_group, per_slot].map(|size| size as u32);
        let of_input = match &c {
            Some(c) => [
                c.x.offset as u32,
                c.group as u32,
                c.before[0],
                c.after[0],
                c.whole_weight,
                c.eps.to_bits(),
                c.scale.to_bits(),
                c.before_c.to_bits(),
                c.after_c.to_bits(),
            ],
            None => [0; 9],
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

/// The last products. Each dispatch adds the experts that are in its part.
fn down(ctx: &mut Ctx<'_, '_>, m: &Mixture, hidden: &Hidden, add: Option<(View, f32)>, out: View) -> Result<()> {
    let d_model = out.width;
    for (at, part) in stack(ctx, m.down, d_model)?.into_iter().enumerate() {
        let matrix = ctx.needed.get(part.matrix).clone();
        let groups = matrix.cols.div_ceil(32);
        let mut binds = Binds::new(ctx.defines());
        binds.write("OUT", out.of());
        binds.read("HIDDEN", hidden.of);
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
        let lanes = lanes(m.n_used * groups, ctx.target.flavours.subgroup);
        binds.set("LANES", lanes);
        binds.set("GROUPS", groups);
        binds.set("COLS", matrix.cols);
        binds.set("USED", m.n_used);
        let per_group = d_model.div_ceil(WORKGROUPS).next_multiple_of(THREADS / lanes);
        let sizes = [
            part.first,
            part.rows,
            matrix.row_words,
            per_group,
            d_model,
            hidden.offset,
            hidden.stride,
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
