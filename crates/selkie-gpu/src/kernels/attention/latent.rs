//! Latent attention of a token, where a kernel sees enough buffers to make queries, keys and values itself.

use selkie_model::{plan::AttentionOp, rope::Pairing};

use super::{part_bytes, push_cuts, shape, split, token_defines};
use crate::{
    Result,
    compile::{Ctx, row},
    kernels::{
        input::{Target, together},
        product::{lanes, parts},
    },
    lower::Latent,
    table::{Count, Grid, Of, Ref, Row},
    weights::{Matrix, MatrixId},
};

/// Buffers that it needs: what it makes queries of, keys and values of, a norm's weight, angles, a matrix under both names, grids,
/// results, parts of results, and the cache's two.
pub(crate) const BUFFERS: u32 = 11;

/// As [`token`](super::token), over what queries, keys and values are made of. All of the matrix has to be in one chunk.
pub(crate) fn token(
    ctx: &mut Ctx<'_, '_>,
    op: &AttentionOp,
    latent: &Latent,
    (matrix, id): (&Matrix, MatrixId),
    out: Target,
) -> Result<Ref> {
    let (x_of, x) = together(ctx, &[latent.q_nope, latent.q_rope], 2)?;
    let (kv_of, kv) = together(ctx, &[latent.c.x, latent.k_rope], 3)?;
    let norm = latent.c.norm;
    let weight = norm.and_then(|norm| norm.weight).map(|weight| ctx.vector(weight));
    let mut binds = shape(ctx, op);
    let split = split(ctx, op)?;
    token_defines(ctx, split, &mut binds);
    binds.set("LATENT", 1);
    binds.set("NOPE", format!("{}u", matrix.cols));
    binds.set("NOPE_ROOM", format!("{}u", 8 * matrix.cols.div_ceil(32)));
    let lanes = lanes(parts(matrix.format, matrix.cols), ctx.target.flavours.subgroup);
    binds.set("LANES", format!("{lanes}u"));
    for (name, on) in [("Q_NORMED", false), ("K_NORMED", false), ("Q_TURNED", true), ("K_TURNED", true)] {
        binds.set(name, on);
    }
    let spec = &ctx.spec.ropes[latent.rope];
    binds.set("PAIRS", format!("{}u", spec.n_dims / 2));
    if spec.pairing == Pairing::Interleaved {
        binds.set("INTERLEAVED", 1);
    }
    binds.read("Q", x_of);
    binds.read("KV", kv_of);
    binds.read("ANGLES", Ref::Angles(latent.rope));
    if let Some(weight) = weight {
        binds.read("NORM_WEIGHT", weight);
    }
    binds.matrix(matrix, id, 0);
    binds.write("OUT", out.of);
    let bytes = part_bytes(ctx, op, split);
    let parts = ctx.scratch(0, bytes);
    binds.write("PARTS", parts);
    let sizes = [x[0][0], kv[0][0], 0, out.offset, 0].map(|size| size as u32);
    let eps = norm.map_or(0.0, |norm| norm.eps);
    let rules = [op.scale, 0.0, 0.0, eps, 0.0, 0.0].map(f32::to_bits);
    let more = [x[1][0], kv[1][0], matrix.row_words].map(|size| size as u32);
    let grid = Grid::Line(Count::new(op.n_heads, Of::Length, split));
    let made = row("latent attention of a row", "kernels/attention/token.wgsl", binds.defines);
    let params = [&sizes[..], &rules, &more].concat();
    push_cuts(ctx, op, Row { params, bindings: binds.list, grid, ..made })?;
    Ok(parts)
}
