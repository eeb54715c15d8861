//! A mixture for blocks of rows.

use selkie_model::{plan::Rows, spec::Mixture};

use super::{Part, Small, bind_gating, down_bias, route_defines, scores, scratch, stack, wide};
use crate::{
    Result,
    compile::{Ctx, View, row},
    kernels::Binds,
    lower::Input,
    table::{Count, Grid, Ref, Row},
};

/// Rows of a tile of an expert's matrix, and of one of products in half precision.
const TILES: [usize; 2] = [64, 128];
/// Workgroup memory that these need.
const HALF_BYTES: u32 = (64 + 128) * 18 * 8 + 4 * 2048 + 4 * 64;

/// What all dispatches of a slice of rows share.
struct Slice<'a> {
    m: &'a Mixture,
    /// Its first row.
    first: usize,
    /// Its rows at most.
    rows: usize,
    /// Whether products are of half precision, by subgroups.
    halves: bool,
    /// Rows of the batch that share an expert, in a tile at most.
    tile: usize,
    /// Where the sorted choices start, after the tiles.
    list: usize,
    out: View,
}

pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    m: &Mixture,
    add: Option<(View, f32)>,
    out: View,
) -> Result<()> {
    let x = ctx.view(input.x)?;
    let scores = scores(ctx, input, m, out.rows)?;
    // Each choice has a row of its own in what the experts make: as many at once as may be bound.
    let each = 4 * (m.n_used * m.d_ff.max(out.width)) as u64;
    let limit = ctx.target.limits.binding.min(ctx.target.limits.buffer);
    let rows = (limit / each).clamp(1, ctx.max_rows as u64) as usize;
    // Tiles are no larger than the rows that an expert gets of a full block, if all get as many.
    let flavours = ctx.target.flavours;
    let halves = flavours.cooperative
        && flavours.subgroup == Some(32)
        && !ctx.target.exact
        && out.width.is_multiple_of(32)
        && m.d_ff.is_multiple_of(32)
        && ctx.target.limits.workgroup_memory >= HALF_BYTES;
    let tile = if halves || rows * m.n_used >= 48 * m.n_experts { 64 } else { 32 };
    let tiles = rows * m.n_used / tile + m.n_experts.min(rows * m.n_used);
    for first in (0..ctx.max_rows).step_by(rows) {
        let slice = Slice { m, first, rows, halves, tile, list: (1 + 3 * tiles).next_multiple_of(4), out };
        slice.emit(ctx, scores, x, add)?;
    }
    Ok(())
}

impl Slice<'_> {
    fn emit(&self, ctx: &mut Ctx<'_, '_>, scores: (Ref, usize), x: View, add: Option<(View, f32)>) -> Result<()> {
        let m = self.m;
        let choices = self.rows * m.n_used;
        let of_choices = |ctx: &mut Ctx<'_, '_>, at: usize, width: usize| ctx.scratch(at, 4 * (choices * width) as u64);
        let small = Small::new(ctx, m);
        self.route(ctx, scores, &small);
        self.sort(ctx);
        let hidden = of_choices(ctx, scratch::HIDDEN, m.d_ff);
        for wide in wide(ctx, m)? {
            for part in &wide.parts {
                let mut binds = Binds::new(ctx.defines());
                let out = if wide.stage == "gates" { of_choices(ctx, scratch::GATES, m.d_ff) } else { hidden };
                binds.write("OUT", out);
                if let Some(small) = small.of.filter(|_| m.biases.is_some()) {
                    binds.read("SMALL", small);
                }
                if wide.stage == "gated" {
                    binds.read("GATES", Ref::Scratch(scratch::GATES));
                }
                binds.read("X", x.of());
                binds.set("STAGE", wide.stage);
                let gating = bind_gating(&mut binds, m, &small);
                self.product(ctx, binds, part, wide.expert_rows, [x.offset, x.stride, m.d_ff], gating);
            }
        }
        let d_model = self.out.width;
        let y = of_choices(ctx, scratch::DOWN, d_model);
        for part in stack(ctx, m.down, d_model)? {
            let mut binds = Binds::new(ctx.defines());
            binds.write("OUT", y);
            if let Some(bias) = down_bias(ctx, m) {
                binds.read("SMALL", bias);
            }
            binds.read("X", hidden);
            binds.set("STAGE", "down");
            self.product(ctx, binds, &part, d_model, [0, m.d_ff, d_model], [0; 5]);
        }
        self.sum(ctx, y, add);
        Ok(())
    }

    /// Experts and weights of each row.
    fn route(&self, ctx: &mut Ctx<'_, '_>, (scores, stride): (Ref, usize), small: &Small) {
        let m = self.m;
        let choices = 4 * (self.rows * m.n_used) as u64;
        let mut binds = Binds::new(ctx.defines());
        binds.read("SCORES", scores);
        if let Some(small) = small.of.filter(|_| m.routing.choice_bias.is_some()) {
            binds.read("SMALL", small);
        }
        let (choice, factors) = (ctx.scratch(scratch::CHOICES, choices), ctx.scratch(scratch::FACTORS, choices));
        binds.write("CHOICES", choice);
        binds.write("FACTORS", factors);
        route_defines(&mut binds, m);
        let params = vec![self.first as u32, self.rows as u32, stride as u32, m.routing.scale.to_bits()];
        let grid = Grid::Line(Count::new(1, self.out.count(), 1));
        self.push(ctx, ("routes", "kernels/mixture/route_rows.wgsl"), binds, params, grid);
    }

    /// The choices by expert, and their tiles.
    fn sort(&self, ctx: &mut Ctx<'_, '_>) {
        let mut binds = Binds::new(ctx.defines());
        binds.read("CHOICES", Ref::Scratch(scratch::CHOICES));
        let sorted = ctx.scratch(scratch::SORTED, 4 * (self.list + self.rows * self.m.n_used) as u64);
        binds.write("SORTED", sorted);
        binds.set("EXPERTS", format!("{}u", self.m.n_experts));
        binds.set("USED", format!("{}u", self.m.n_used));
        binds.set("TILE_T", format!("{}u", self.tile));
        let params = [self.first, self.rows, self.list].map(|word| word as u32).to_vec();
        let grid = Grid::Line(Count::fixed(1));
        self.push(ctx, ("routes by expert", "kernels/mixture/sort.wgsl"), binds, params, grid);
    }

    /// Products of sorted rows with a part of a stack. `x`'s offset and stride, and the stride of what is made.
    fn product(
        &self,
        ctx: &mut Ctx<'_, '_>,
        mut binds: Binds,
        part: &Part,
        expert_rows: usize,
        [offset, stride, out_stride]: [usize; 3],
        gating: [u32; 5],
    ) {
        let matrix = ctx.needed.get(part.matrix).clone();
        binds.read("SORTED", Ref::Scratch(scratch::SORTED));
        binds.matrix(&matrix, part.matrix, part.chunk);
        binds.set("USED", format!("{}u", self.m.n_used));
        if !self.halves {
            binds.set("TILE_T", format!("{}u", self.tile));
        }
        let sizes = [
            matrix.cols,
            matrix.cols.div_ceil(32),
            part.first,
            part.rows,
            matrix.row_words,
            expert_rows,
            self.list,
            self.first,
            offset,
            stride,
            out_stride,
        ]
        .map(|size| size as u32);
        let params = [&sizes[..], &gating].concat();
        // Workgroups take tiles in turns: enough for all tiles at once where experts get a few rows each.
        let at_once = Count::new(self.m.n_used, self.out.count(), 16);
        let tile = TILES[usize::from(self.halves)];
        let grid = Grid::Block([Count::fixed(expert_rows.div_ceil(tile)), at_once, Count::fixed(1)]);
        let made = if self.halves {
            ("experts of tiles", "kernels/mixture/grouped_halves.wgsl")
        } else {
            ("experts of rows", "kernels/mixture/grouped.wgsl")
        };
        self.push(ctx, made, binds, params, grid);
    }

    /// What each row's experts made, with their weights.
    fn sum(&self, ctx: &mut Ctx<'_, '_>, y: Ref, add: Option<(View, f32)>) {
        let out = self.out;
        let mut binds = Binds::new(ctx.defines());
        binds.write("OUT", out.of());
        binds.read("Y", y);
        binds.read("FACTORS", Ref::Scratch(scratch::FACTORS));
        let mut residual = [0, 0];
        if let Some((view, _)) = add {
            binds.read("RESIDUAL", view.of());
            residual = [view.offset, view.stride];
        }
        binds.set("USED", format!("{}u", self.m.n_used));
        let sizes = [self.first, self.rows, out.width, out.offset, out.stride, residual[0], residual[1]];
        let scale = add.map_or(1.0, |add| add.1);
        let params = [&sizes.map(|size| size as u32)[..], &[scale.to_bits()]].concat();
        let grid = Grid::Line(Count::new(out.width.div_ceil(128), out.count(), 1));
        self.push(ctx, ("experts' sums", "kernels/mixture/sum.wgsl"), binds, params, grid);
    }

    /// A dispatch that runs where the batch reaches this slice.
    fn push(
        &self,
        ctx: &mut Ctx<'_, '_>,
        (kernel, file): (&'static str, &'static str),
        mut binds: Binds,
        params: Vec<u32>,
        grid: Grid,
    ) {
        binds.set("ROWS", if self.out.rows == Rows::All { "rows" } else { "outputs" });
        let from = (self.first > 0).then_some((self.out.count(), self.first as u32 + 1));
        ctx.push(Row { params, grid, from, bindings: binds.list, ..row(kernel, file, binds.defines) });
    }
}
