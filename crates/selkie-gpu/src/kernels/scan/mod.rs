//! Mamba-1's selective scan: one dispatch for a token; rows in chunks, all at once but for what a chunk hands to the next.

#[cfg(test)]
mod test;

use selkie_model::{
    WeightId,
    plan::{Product, SelectiveScanOp},
    spec::InputRule,
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, row},
    kernels::{Binds, product},
    lower::Input,
    table::{Count, Each, Grid, Of, Ref, Row},
    weights::MatrixId,
};

/// Invocations of a workgroup.
const THREADS: usize = 64;
/// Rows of a chunk.
const CHUNK: usize = 64;
/// States of a channel at most: a row of B and C has to fit in workgroup memory.
const MOST_STATES: usize = 1024;
/// Values of the row that step sizes are made of at most, where a token's kernel makes them.
const MOST_LOW: usize = 1024;
/// The scratch buffer of step sizes that it cannot make; products use those before it.
const STEPS: usize = 2;

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
        let sizes = [("D_STATE", self.d_state), ("QUADS", self.quads), ("LANES", self.lanes), ("CHUNK", CHUNK)];
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
        Regime::Token => token(ctx, &shape, op, dt, [b, c]),
        Regime::Block => block(ctx, &shape, op),
    }
}

/// The weights of norms over all of a row, where they have some, and their epsilons.
struct Norms {
    weights: Vec<Option<WeightId>>,
    eps: Vec<f32>,
}

impl Norms {
    fn of(binds: &mut Binds, inputs: &[(&str, &Input)]) -> Self {
        let mut made = Self { weights: vec![], eps: vec![] };
        for (name, input) in inputs {
            if input.norm.is_some() {
                binds.set(name, 1);
            }
            made.weights.push(input.norm.and_then(|norm| norm.weight));
            made.eps.push(input.norm.map_or(0.0, |norm| norm.eps));
        }
        made
    }
}

fn token(
    ctx: &mut Ctx<'_, '_>,
    shape: &Shape,
    op: &SelectiveScanOp,
    dt: Option<&(Input, Product)>,
    [b, c]: [&Input; 2],
) -> Result<()> {
    let [x, b_view, c_view, out] = [ctx.view(op.x)?, ctx.view(b.x)?, ctx.view(c.x)?, ctx.view(op.out)?];
    let mut binds = shape.binds(ctx, op);
    binds.read("X", x.of());
    let norms = Norms::of(&mut binds, &[("NORM_OF_B", b), ("NORM_OF_C", c)]);
    // What of small weights there is, one after another.
    let mut small = vec![];
    let mut of_low = vec![];
    let dt_offset;
    let steps = match dt {
        Some((low, product)) => Steps::of(ctx, low, product, b_view.place == c_view.place, b_view.place)?,
        None => None,
    };
    if let Some(steps) = &steps {
        dt_offset = steps.low.offset;
        binds.read("LOW", steps.low.of());
        let matrix = ctx.needed.get(steps.matrix).clone();
        binds.matrix(&matrix, steps.matrix, 0);
        binds.set("GROUPS", format!("{}u", matrix.cols.div_ceil(32)));
        if let Some(bias) = steps.bias {
            binds.set("BIAS", 1);
            small.push((Some(bias), shape.channels));
        }
        of_low = vec![matrix.cols, matrix.cols.div_ceil(32), matrix.row_words];
    } else {
        let dt = match dt {
            Some((low, product)) => {
                let made = ctx.scratch(STEPS, 4 * shape.channels.next_multiple_of(4) as u64);
                product::emit_to_scratch(ctx, low, product, made)?;
                (made, 0)
            }
            None => {
                let view = ctx.view(op.dt)?;
                (view.of(), view.offset)
            }
        };
        dt_offset = dt.1;
        binds.read("DT", dt.0);
        binds.read("B", b_view.of());
        if c_view.place != b_view.place {
            binds.read("C", c_view.of());
        }
    }
    let norms_at = len(&small);
    match norms.weights[..] {
        [None, None] => {}
        [Some(b), Some(c)] => {
            binds.set("WEIGHTED", 1);
            small.extend([(Some(b), shape.d_state), (Some(c), shape.d_state)]);
        }
        _ => {
            let what = "norms of B and C need weights on both, or on neither".into();
            return Err(Error::Op { op: "selective_scan".into(), what });
        }
    }
    let places = [shape.channels, x.offset, dt_offset, b_view.offset, c_view.offset, out.offset];
    let mut params: Vec<u32> = places.iter().map(|&place| place as u32).collect();
    params.extend(norms.eps.iter().map(|eps| eps.to_bits()));
    params.push(norms_at as u32);
    if let Some((low, _)) = dt.filter(|_| steps.is_some()) {
        let norm = Norms::of(&mut binds, &[("NORM_OF_LOW", low)]);
        params.extend([norm.eps[0].to_bits(), len(&small) as u32]);
        params.extend(of_low.iter().map(|&size| size as u32));
        if let Some(weight) = norm.weights[0] {
            binds.set("LOW_WEIGHTED", 1);
            small.push((Some(weight), of_low[0]));
        }
    }
    if !small.is_empty() {
        let small = ctx.vector_of(&small, false);
        binds.read("SMALL", Ref::Vector(small));
    }
    binds.write("OUT", out.of());
    let grid = Grid::Line(Count::fixed(shape.channels.div_ceil(shape.channels_each())));
    let made = row("selective scan of a row", "kernels/scan/token.wgsl", binds.defines);
    let (slot, each) = (Some(op.state), Each::Sequence);
    ctx.push(Row { params, bindings: binds.list, grid, slot, each, ..made });
    Ok(())
}

fn len(parts: &[(Option<WeightId>, usize)]) -> usize {
    parts.iter().map(|part| part.1).sum()
}

/// The product that a token's kernel makes step sizes with.
struct Steps {
    /// The short row that it is made of.
    low: View,
    matrix: MatrixId,
    bias: Option<WeightId>,
}

impl Steps {
    /// `None` where the kernel cannot, for want of bindings or workgroup memory.
    fn of(ctx: &mut Ctx<'_, '_>, low: &Input, product: &Product, together: bool, place: usize) -> Result<Option<Self>> {
        let view = ctx.view(low.x)?;
        if !together || view.place != place || view.width > MOST_LOW {
            return Ok(None);
        }
        let [matrix] = product::matrices(ctx, &[product.weight], false)?[..] else { return Ok(None) };
        let found = ctx.needed.get(matrix);
        if found.chunks.len() != 1 || found.format.needs_grids() {
            return Ok(None);
        }
        Ok(Some(Self { low: view, matrix, bias: product.bias }))
    }
}

fn block(ctx: &mut Ctx<'_, '_>, shape: &Shape, op: &SelectiveScanOp) -> Result<()> {
    let views = [ctx.view(op.x)?, ctx.view(op.dt)?, ctx.view(op.b)?, ctx.view(op.c)?, ctx.view(op.out)?];
    let [x, dt, b, c, out] = views;
    // As `first_chunk` of the shaders numbers them.
    let chunks = (ctx.max_rows / CHUNK * 2).max(1);
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
        let sizes = [("TILE", tile), ("EACH", each_lane)];
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
