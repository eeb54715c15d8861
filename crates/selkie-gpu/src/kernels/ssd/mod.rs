//! Mamba-2's recurrence, and MBJS's complex one in the same shaders: a step at a time for a token or a few rows, chunks of rows
//! as masked products of matrices for more.

#[cfg(test)]
mod test;

use selkie_model::plan::{BufferId, SlotId, SsdOp};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, row},
    kernels::Binds,
    table::{Count, Each, Grid, Of, Ref, Row},
    weights::VectorId,
};

/// Rows of a chunk, as in `chunk.wgsl`.
const CHUNK: usize = 64;
/// From so many rows on chunks are faster than steps.
const MANY: u32 = 16;
/// Invocations of a workgroup of `step.wgsl`.
const THREADS: usize = 128;

/// Either recurrence as the shaders see it.
pub(super) struct Recurrence {
    /// In messages.
    pub name: &'static str,
    /// Inputs, B and C side by side.
    pub xbc: BufferId,
    /// Before the softplus.
    pub dt: BufferId,
    /// Multiplies them.
    pub dt_scale: f32,
    /// Of heads: a, or a_log in pairs; then d; then dt_bias.
    pub heads: VectorId,
    /// Heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C.
    pub n_groups: usize,
    /// Values of B, of C and of a channel's states.
    pub width: usize,
    /// Whether these are pairs.
    pub complex: bool,
    /// Least and largest step size.
    pub limits: [f32; 2],
    /// Whether the input is multiplied by the step size.
    pub scale_input: bool,
    /// Where the states are.
    pub state: SlotId,
    /// The result.
    pub out: BufferId,
}

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, op: &SsdOp, dt_scale: f32) -> Result<()> {
    let shape = op.shape;
    let heads = [op.a, op.d, op.dt_bias].map(|id| (Some(id), shape.n_heads));
    let recurrence = Recurrence {
        name: "ssd",
        xbc: op.xbc,
        dt: op.dt,
        dt_scale,
        heads: ctx.vector_of(&heads, false),
        n_heads: shape.n_heads,
        head_dim: shape.head_dim,
        n_groups: shape.n_groups,
        width: shape.d_state,
        complex: false,
        limits: [shape.dt_min, shape.dt_max],
        scale_input: shape.scale_input,
        state: op.state,
        out: op.out,
    };
    recurrence.emit(ctx)
}

impl Recurrence {
    pub(super) fn emit(&self, ctx: &mut Ctx<'_, '_>) -> Result<()> {
        if ctx.target.regime == Regime::Token {
            return self.steps(ctx, None);
        }
        self.steps(ctx, Some((Of::Own, MANY)))?;
        self.chunks(ctx)
    }

    /// Bindings and parameters of all kernels that see rows.
    fn binds(&self, ctx: &Ctx<'_, '_>) -> Result<(Binds, Vec<u32>, View)> {
        let [xbc, dt, out] = [ctx.view(self.xbc)?, ctx.view(self.dt)?, ctx.view(self.out)?];
        let mut binds = Binds::new(ctx.defines());
        if self.complex {
            binds.set("COMPLEX", 1);
        }
        if self.head_dim.is_multiple_of(4) && self.width.is_multiple_of(4) {
            binds.set("QUADS", 1);
        }
        binds.read("XBC", xbc.of());
        binds.read("DT", dt.of());
        binds.read("HEADS", Ref::Vector(self.heads));
        let sizes = [
            self.n_heads,
            self.head_dim,
            self.n_groups,
            self.width,
            xbc.offset,
            xbc.stride,
            dt.offset,
            dt.stride,
            out.offset,
            out.stride,
        ];
        let mut params = sizes.map(|size| size as u32).to_vec();
        // No infinities in shaders.
        params.extend(self.limits.map(|limit| limit.clamp(f32::MIN, f32::MAX).to_bits()));
        params.extend([self.scale_input.into(), self.dt_scale.to_bits()]);
        Ok((binds, params, out))
    }

    /// One dispatch, a step at a time; where there are fewer rows than `until`.
    fn steps(&self, ctx: &mut Ctx<'_, '_>, until: Option<(Of, u32)>) -> Result<()> {
        let (mut binds, params, out) = self.binds(ctx)?;
        // Four quads of states for each invocation.
        let lanes = self.width.div_ceil(16).next_power_of_two().max(2);
        if lanes > THREADS {
            let what = format!("{} states of a channel are too many for it", self.width);
            return Err(Error::Op { op: self.name.into(), what });
        }
        binds.set("LANES", format!("{lanes}u"));
        binds.write("OUT", out.of());
        let groups = self.n_heads * self.head_dim.div_ceil(THREADS / lanes);
        let grid = Grid::Line(Count::fixed(groups));
        let made = row("recurrence, step by step", "kernels/ssd/step.wgsl", binds.defines);
        let (slot, each) = (Some(self.state), Each::Sequence);
        ctx.push(Row { params, bindings: binds.list, slot, each, grid, until, ..made });
        Ok(())
    }

    /// Three dispatches: what chunks add to the states, from chunk to chunk, and what each row reads.
    fn chunks(&self, ctx: &mut Ctx<'_, '_>) -> Result<()> {
        let (each, from) = (Each::Sequence, Some((Of::Own, MANY)));
        let chunks = ctx.max_rows.div_ceil(CHUNK);
        let quads = self.width.div_ceil(4);
        let channels = self.n_heads * self.head_dim;
        let added_bytes = 16 * (chunks * channels * quads) as u64;
        let added = ctx.scratch(0, added_bytes);
        let totals = ctx.scratch(1, 8 * (chunks * self.n_heads) as u64);
        let of_chunks = Count::new(1, Of::Own, CHUNK);

        let (mut binds, params, _) = self.binds(ctx)?;
        binds.write("ADDED", added);
        binds.write("TOTALS", totals);
        let tiles = self.head_dim.div_ceil(64) * quads.div_ceil(16);
        let grid = Grid::Block([Count::fixed(tiles), Count::fixed(self.n_heads), of_chunks]);
        let made = row("recurrence, states of chunks", "kernels/ssd/states.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, each, grid, from, ..made });

        let mut binds = Binds::new(ctx.defines());
        if self.complex {
            binds.set("COMPLEX", 1);
        }
        binds.write("ADDED", added);
        binds.read("TOTALS", totals);
        let params = [channels, self.head_dim, self.width].map(|size| size as u32).to_vec();
        let grid = Grid::Line(Count::fixed((channels * quads).div_ceil(64)));
        let made = row("recurrence, from chunk to chunk", "kernels/ssd/pass.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, slot: Some(self.state), each, grid, from, ..made });

        let (mut binds, params, out) = self.binds(ctx)?;
        binds.read("BEFORE", added);
        binds.write("OUT", out.of());
        let tiles = Count::fixed(self.head_dim.div_ceil(64));
        let grid = Grid::Block([tiles, Count::fixed(self.n_heads), of_chunks]);
        let made = row("recurrence, rows of chunks", "kernels/ssd/outputs.wgsl", binds.defines);
        ctx.push(Row { params, bindings: binds.list, each, grid, from, ..made });
        Ok(())
    }
}
