//! A head's row as several and one again: with weights for each rank there and back, and on the way a norm and a gate.

#[cfg(test)]
mod test;

use selkie_model::{WeightId, plan::BufferId};

use crate::{
    Result,
    compile::{Ctx, row},
    kernels::Binds,
    lower::{Function, RankGate},
    table::{Count, Grid, Of, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;

/// `out[h, r] = weight[h, r] · x[h]`.
pub(super) fn expand(ctx: &mut Ctx<'_, '_>, x: BufferId, weight: WeightId, dim: usize, out: BufferId) -> Result<()> {
    one_way(ctx, "EXPAND", x, weight, dim, out)
}

/// `out[h] = Σ weight[h, r] · x[h, r]`.
pub(super) fn reduce(ctx: &mut Ctx<'_, '_>, x: BufferId, weight: WeightId, dim: usize, out: BufferId) -> Result<()> {
    one_way(ctx, "REDUCE", x, weight, dim, out)
}

fn one_way(
    ctx: &mut Ctx<'_, '_>,
    way: &str,
    x: BufferId,
    weight: WeightId,
    head_dim: usize,
    out: BufferId,
) -> Result<()> {
    let (x, out) = (ctx.view(x)?, ctx.view(out)?);
    let mut binds = Binds::new(ctx.defines());
    binds.set(way, 1);
    binds.read("X", x.of());
    let weight = ctx.vector(weight);
    binds.read("WEIGHT", weight);
    binds.write("OUT", out.of());
    let rank = x.width.max(out.width) / x.width.min(out.width);
    let sizes = [out.width, head_dim, rank, x.offset, x.stride, out.offset, out.stride];
    let params = sizes.map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::new(out.width.div_ceil(128), Of::Rows, 1));
    let made = row("ranks", "kernels/ranks/ranks.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, ..made });
    Ok(())
}

/// `out[h] = Σ out_weight[h, r] · activation(gate_weight[h, r] · gate[h]) · norm(x[h, r])`.
pub(super) fn gate(ctx: &mut Ctx<'_, '_>, op: &RankGate) -> Result<()> {
    let (x, gate, out) = (ctx.view(op.x)?, ctx.view(op.gate)?, ctx.view(op.out)?);
    let mut binds = Binds::new(ctx.defines());
    binds.read("X", x.of());
    binds.read("GATE", gate.of());
    let mut parts = vec![(Some(op.gate_weight), x.width), (Some(op.out_weight), x.width)];
    let mut norm_len = 1;
    if let Some(norm) = op.norm {
        binds.set("NORM", 1);
        if let Some(weight) = norm.weight {
            binds.set("NORM_WEIGHT", 1);
            norm_len = ctx.needed.shape(weight).iter().product();
            parts.push((Some(weight), norm_len));
        }
    }
    let weights = Ref::Vector(ctx.vector_of(&parts, false));
    binds.read("WEIGHTS", weights);
    binds.write("OUT", out.of());
    let rank = x.width / out.width;
    // No more heads at once than there is room for factors of, one a rank.
    let wide = op.head_dim.next_power_of_two().max(rank.next_power_of_two() / 4).min(THREADS);
    binds.set("WIDE", wide);
    binds.set("RANK", rank);
    let (function, _) = Function::Activation(op.activation).shader();
    binds.set("GATE_FN", function);
    let n_heads = out.width / op.head_dim;
    let sizes = [n_heads, op.head_dim, x.offset, x.stride, gate.offset, gate.stride, out.offset, out.stride, norm_len];
    let eps = op.norm.map_or(0.0, |norm| norm.eps);
    let params = sizes.iter().map(|&size| size as u32).chain([eps.to_bits()]).collect();
    let grid = Grid::Line(Count::new(n_heads.div_ceil(THREADS / wide), Of::Rows, 1));
    let made = row("gate of ranks", "kernels/ranks/gate.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, ..made });
    Ok(())
}
