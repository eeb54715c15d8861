//! Mamba-1's selective scan: one dispatch for a token; rows in chunks, all at once but for what a chunk hands to the next.

#[cfg(test)]
mod test;
mod token;

use selkie_model::{
    plan::{Product, SelectiveScanOp},
    spec::InputRule,
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, row},
    kernels::Binds,
    lower::Input,
    table::{Count, Each, Grid, Of, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 64;
/// Rows of a chunk.
const CHUNK: usize = 64;
/// States of a channel at most: a row of B and C has to fit in workgroup memory.
const MOST_STATES: usize = 1024;

/// The sizes that kernels are made for.
struct Shape {
    channels: usize,
    d_state: usize,
    /// Quads of a channel's states.
    quads: usize,
    /// Invocations that share a channel.
    lanes: usize,
}

impl Shape {
    fn channels_each(&self) -> usize {
        THREADS / self.lanes
    }

    /// With what all of them are told, and A and D.
    fn binds(&self, ctx: &mut Ctx<'_, '_>, op: &SelectiveScanOp) -> Binds {
        let mut binds = Binds::new(ctx.defines());
        let sizes = [("D_STATE", self.d_state), ("QUADS", self.quads), ("LANES", self.lanes)];
        sizes.iter().for_each(|(name, size)| binds.set(name, format!("{size}u")));
        if self.d_state.is_multiple_of(4) {
            binds.set("ALIGNED", 1);
        }
        if op.input == InputRule::ZeroOrderHold {
            binds.set("ZERO_ORDER_HOLD", 1);
        }
        let weights = [(Some(op.a), self.channels * self.d_state), (Some(op.d), self.channels)];
        let weights = ctx.vector_of(&weights, false);
        binds.read("A", Ref::Vector(weights));
        binds
    }
}

pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    op: &SelectiveScanOp,
    dt: Option<&(Input, Product)>,
    b: &Input,
    c: &Input,
) -> Result<()> {
    let (channels, d_state) = (ctx.plan.buffer(op.x).width, ctx.plan.buffer(op.b).width);
    if d_state > MOST_STATES {
        let what = format!("{d_state} states of a channel are more than {MOST_STATES}");
        return Err(Error::Op { op: "selective_scan".into(), what });
    }
    let quads = d_state.div_ceil(4);
    let shape = Shape { channels, d_state, quads, lanes: quads.next_power_of_two().min(16) };
    match ctx.target.regime {
        Regime::Token => token::emit(ctx, &shape, op, dt, [b, c]),
        Regime::Block => block(ctx, &shape, op),
    }
}

fn block(ctx: &mut Ctx<'_, '_>, shape: &Shape, op: &SelectiveScanOp) -> Result<()> {
    let views = [ctx.view(op.x)?, ctx.view(op.dt)?, ctx.view(op.b)?, ctx.view(op.c)?, ctx.view(op.out)?];
    let [x, dt, b, c, out] = views;
    let chunks = ctx.max_rows.div_ceil(CHUNK);
    let ends = ctx.scratch(0, 16 * (chunks * shape.channels * shape.quads) as u64);
    let times = ctx.scratch(1, 4 * (chunks * shape.channels) as u64);
    let each_lane = shape.quads.div_ceil(shape.lanes);
    // B, C and the sums of a tile take half of the smallest workgroup memory at most.
    let tile = (256 / (shape.lanes * each_lane)).clamp(1, 16);
    let places = views.iter().flat_map(|view| [view.offset as u32, view.stride as u32]);
    let params: Vec<u32> = std::iter::once(shape.channels as u32).chain(places).collect();
    let (slot, each) = (Some(op.state), Each::Sequence);
    let several = Some((Of::Own, CHUNK as u32 + 1));
    let blocks =
        [Count::fixed(shape.channels.div_ceil(shape.channels_each())), Count::new(1, Of::Own, CHUNK), Count::fixed(1)];
    let sized = |ctx: &mut Ctx<'_, '_>| {
        let mut binds = shape.binds(ctx, op);
        let sizes = [("CHUNK", CHUNK), ("TILE", tile), ("EACH", each_lane)];
        sizes.iter().for_each(|(name, size)| binds.set(name, format!("{size}u")));
        binds
    };

    let mut binds = sized(ctx);
    binds.set("PASS", "ends");
    binds.read("X", x.of());
    binds.read("DT", dt.of());
    binds.read("B", b.of());
    binds.write("ENDS", ends);
    binds.write("TIMES", times);
    let made = row("selective scan of chunks", "kernels/scan/block.wgsl", binds.defines);
    let (params_here, grid) = (params.clone(), Grid::Block(blocks));
    ctx.push(Row { params: params_here, bindings: binds.list, grid, slot, each, from: several, ..made });

    let mut binds = sized(ctx);
    binds.read("TIMES", times);
    binds.write("ENDS", ends);
    let made = row("selective scan, chunks joined", "kernels/scan/carry.wgsl", binds.defines);
    let grid = Grid::Line(Count::fixed((shape.channels * shape.quads).div_ceil(64)));
    let params_here = vec![shape.channels as u32];
    ctx.push(Row { params: params_here, bindings: binds.list, grid, slot, each, from: several, ..made });

    let mut binds = sized(ctx);
    binds.set("PASS", "outputs");
    binds.read("X", x.of());
    binds.read("DT", dt.of());
    binds.read("B", b.of());
    binds.read("C", c.of());
    binds.read("STARTS", ends);
    binds.write("OUT", out.of());
    let made = row("selective scan of rows", "kernels/scan/block.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid: Grid::Block(blocks), slot, each, ..made });
    Ok(())
}
