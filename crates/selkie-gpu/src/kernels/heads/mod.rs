//! What is done to each head by itself: heads that are joined, and a matrix for each. Latent attention reads its compressed rows
//! through such matrices, and for a token all that stands before its attention is made in one dispatch.

#[cfg(test)]
mod test;

use selkie_model::{
    WeightId,
    plan::{AttentionOp, BufferId},
    rope::Pairing,
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, row},
    kernels::{
        Binds, attention,
        input::{Target, together},
    },
    lower::{Input, Latent},
    table::{Count, Each, Grid, Of, Ref, Row},
    weights::{Matrix, MatrixId, MatrixKey, Piece},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;
/// Words of the parameters of token.wgsl.
const PARAMS: usize = 18;
/// Rows and columns of a tile.
const TILE: usize = 64;

pub(super) fn join(ctx: &mut Ctx<'_, '_>, a: BufferId, b: BufferId, n_heads: usize, out: BufferId) -> Result<()> {
    let [a, b, out] = [ctx.view(a)?, ctx.view(b)?, ctx.view(out)?];
    let mut binds = Binds::new(ctx.defines());
    binds.read("A", a.of());
    binds.read("B", b.of());
    binds.write("OUT", out.of());
    let dims = [a.width / n_heads, b.width / n_heads];
    let sizes = [out.width, dims[0], dims[1], a.offset, a.stride, b.offset, b.stride, out.offset, out.stride];
    let params = sizes.map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::new(out.width.div_ceil(128), Of::Rows, 1));
    let made = row("join heads", "kernels/heads/join.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, ..made });
    Ok(())
}

pub(super) fn linear(
    ctx: &mut Ctx<'_, '_>,
    x: BufferId,
    weight: WeightId,
    n_heads: usize,
    out: BufferId,
) -> Result<()> {
    let (x, out) = (ctx.view(x)?, ctx.view(out)?);
    for stack in stacks(ctx, weight, n_heads)? {
        if ctx.target.regime == Regime::Token {
            let made = Product { x: x.offset, out: out.offset, out_head: stack.head_out, n_heads };
            token(ctx, &stack, &made, |binds| {
                binds.read("X", x.of());
                binds.write("OUT", out.of());
            })?;
            continue;
        }
        for (chunk, rows) in stack.matrix.chunks.iter().enumerate() {
            let mut binds = Binds::new(ctx.defines());
            binds.read("X", x.of());
            binds.write("OUT", out.of());
            binds.matrix(&stack.matrix, stack.id, chunk);
            let sizes = [
                stack.matrix.cols,
                stack.matrix.cols.div_ceil(32),
                stack.first_head + rows.start / stack.head_out,
                stack.head_out,
                stack.matrix.row_words,
                x.offset,
                x.stride,
                out.offset,
                out.stride,
            ];
            let params = sizes.map(|size| size as u32).to_vec();
            let heads = rows.len() / stack.head_out;
            let counts = [stack.head_out.div_ceil(TILE), heads].map(Count::fixed);
            let grid = Grid::Block([counts[0], Count::new(1, Of::Rows, TILE), counts[1]]);
            let made = row("product for each head, with rows", "kernels/heads/block.wgsl", binds.defines);
            ctx.push(Row { params, bindings: binds.list, grid, ..made });
        }
    }
    Ok(())
}

/// The matrices of some heads in a row, all of one type.
struct Stack {
    id: MatrixId,
    matrix: Matrix,
    first_head: usize,
    /// Rows of a head.
    head_out: usize,
}

/// The matrices of a weight `[n_heads, out, in]`, one for each run of a type. Heads are never cut.
fn stacks(ctx: &mut Ctx<'_, '_>, weight: WeightId, n_heads: usize) -> Result<Vec<Stack>> {
    let shape = ctx.needed.shape(weight);
    let head_out = shape[..shape.len() - 1].iter().product::<usize>() / n_heads;
    let mut made = vec![];
    for (dtype, rows) in ctx.needed.runs(weight) {
        if rows.start % head_out != 0 || rows.end % head_out != 0 {
            return Err(Error::Op { op: "head_linear".into(), what: "a head's matrix is of several types".into() });
        }
        let piece = Piece { weight, first: rows.start, rows: rows.len(), padding: 0 };
        let key = MatrixKey { pieces: vec![piece], in_turns: false };
        let id = ctx.needed.matrix(key, dtype, head_out)?;
        made.push(Stack { id, matrix: ctx.needed.get(id).clone(), first_head: rows.start / head_out, head_out });
    }
    Ok(made)
}

/// Where a token's product for each head reads and writes.
struct Product {
    /// Of the first head of all.
    x: usize,
    /// Of the first head of all.
    out: usize,
    /// From a head to the next.
    out_head: usize,
    n_heads: usize,
}

/// The dispatches of a token over one stack.
fn token(ctx: &mut Ctx<'_, '_>, stack: &Stack, product: &Product, bind: impl Fn(&mut Binds)) -> Result<()> {
    for chunk in 0..stack.matrix.chunks.len() {
        let mut binds = Binds::new(ctx.defines());
        bind(&mut binds);
        one(ctx, stack, chunk, product, binds, 0, &[])?;
    }
    Ok(())
}

/// One dispatch of a token: a chunk of a stack, and `beside` more workgroups with the parameters `more` for what is made beside.
fn one(
    ctx: &mut Ctx<'_, '_>,
    stack: &Stack,
    chunk: usize,
    product: &Product,
    mut binds: Binds,
    beside: usize,
    more: &[u32],
) -> Result<()> {
    let matrix = &stack.matrix;
    binds.matrix(matrix, stack.id, chunk);
    let groups = matrix.cols.div_ceil(32);
    let room = (9 * groups).next_multiple_of(64);
    if 16 * room + 4 * THREADS > ctx.target.limits.workgroup_memory as usize {
        let what = format!("{} channels of a head are too many", matrix.cols);
        return Err(Error::Op { op: "head_linear".into(), what });
    }
    binds.set("ROOM", room);
    let units = if matrix.format.is_float() { matrix.cols.div_ceil(8) } else { groups };
    let most = ctx.target.flavours.subgroup.map_or(32, |size| size.clamp(4, 32) as usize);
    let lanes = units.next_power_of_two().clamp(4, most);
    binds.set("LANES", format!("{lanes}u"));
    let rows = &matrix.chunks[chunk];
    let heads = rows.len() / stack.head_out;
    // A few workgroups a head: each makes the head's input, which may be work where attention's parts are joined.
    let per_group = stack.head_out.div_ceil(4).next_multiple_of(THREADS / lanes);
    let sizes = [
        matrix.cols,
        groups,
        stack.first_head + rows.start / stack.head_out,
        heads,
        stack.head_out,
        matrix.row_words,
        per_group,
        product.x,
        product.out,
        product.out_head,
        product.n_heads,
    ];
    let mut params: Vec<u32> = sizes.iter().map(|&size| size as u32).chain(more.iter().copied()).collect();
    params.resize(PARAMS, 0);
    let grid = Grid::Line(Count::fixed(heads * stack.head_out.div_ceil(per_group) + beside));
    let made = row("product for each head", "kernels/heads/token.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, each: Each::Sequence, ..made });
    Ok(())
}

/// A token's queries, keys and values of latent attention.
pub(super) fn latent(ctx: &mut Ctx<'_, '_>, op: &Latent) -> Result<()> {
    let [q, k, v] = [ctx.view(op.q)?, ctx.view(op.k)?, ctx.view(op.v)?];
    let turned = ctx.view(op.k_rope)?.width;
    let (x_of, x) = together(ctx, &[op.q_nope, op.q_rope], 0)?;
    let (kv_of, kv) = together(ctx, &[op.c.x, op.k_rope], 1)?;
    let spec = &ctx.spec.ropes[op.rope];
    let (pairs, interleaved) = (spec.n_dims / 2, spec.pairing == Pairing::Interleaved);
    let norm = op.c.norm;
    let weight = norm.and_then(|norm| norm.weight).map(|weight| ctx.vector(weight));
    let eps = norm.map_or(0.0, |norm| norm.eps);
    let mut beside = (op.n_heads * turned).div_ceil(THREADS) + 1;
    for stack in stacks(ctx, op.k_up, op.n_heads)? {
        let out_head = stack.head_out + turned;
        let product = Product { x: x[0][0], out: q.offset, out_head, n_heads: op.n_heads };
        for chunk in 0..stack.matrix.chunks.len() {
            let mut binds = Binds::new(ctx.defines());
            binds.read("X", x_of);
            binds.write("OUT", q.of());
            let mut more = vec![];
            if beside > 0 {
                binds.set("LATENT", 1);
                binds.set("PAIRS", format!("{pairs}u"));
                if interleaved {
                    binds.set("INTERLEAVED", 1);
                }
                binds.read("KV", kv_of);
                binds.read("ANGLES", Ref::Angles(op.rope));
                if let Some(weight) = weight {
                    binds.read("NORM_WEIGHT", weight);
                }
                let sizes = [turned, x[1][0], kv[0][0], kv[1][0], k.offset, v.offset];
                more.extend(sizes.iter().map(|&size| size as u32).chain([eps.to_bits()]));
            }
            one(ctx, &stack, chunk, &product, binds, beside, &more)?;
            beside = 0;
        }
    }
    Ok(())
}

/// A token's attention whose results each head's matrix multiplies.
pub(super) fn attention(
    ctx: &mut Ctx<'_, '_>,
    op: &AttentionOp,
    [q, k]: [&Input; 2],
    weight: WeightId,
    out: BufferId,
) -> Result<()> {
    let of = results(ctx, op);
    let parts = attention::token(ctx, op, [q, k], Target { of, offset: 0, stride: 0 })?;
    of_results(ctx, op, [of, parts], weight, out)
}

/// The same of latent attention, which makes queries, keys and values itself where their matrix is in one piece.
pub(super) fn latent_attention(
    ctx: &mut Ctx<'_, '_>,
    op: &AttentionOp,
    of_latent: &Latent,
    weight: WeightId,
    out: BufferId,
) -> Result<()> {
    let stacks = stacks(ctx, of_latent.k_up, of_latent.n_heads)?;
    let whole = |stack: &&Stack| stacks.len() == 1 && stack.matrix.chunks.len() == 1;
    let Some(Stack { id, matrix, .. }) = stacks.first().filter(whole) else {
        latent(ctx, of_latent)?;
        return attention(ctx, op, [&Input::plain(op.q), &Input::plain(op.k)], weight, out);
    };
    let of = results(ctx, op);
    let target = Target { of, offset: 0, stride: 0 };
    let parts = attention::latent_token(ctx, op, of_latent, (matrix, *id), target)?;
    of_results(ctx, op, [of, parts], weight, out)
}

/// Where a token's attention leaves its results.
fn results(ctx: &mut Ctx<'_, '_>, op: &AttentionOp) -> Ref {
    ctx.scratch(1, 4 * (op.n_heads * op.v_head_dim) as u64)
}

/// Each head's matrix times a token's results, or the parts of them.
fn of_results(
    ctx: &mut Ctx<'_, '_>,
    op: &AttentionOp,
    [of, parts]: [Ref; 2],
    weight: WeightId,
    out: BufferId,
) -> Result<()> {
    let out = ctx.view(out)?;
    let split = attention::split(ctx, op)?;
    for stack in stacks(ctx, weight, op.n_heads)? {
        let product = Product { x: 0, out: out.offset, out_head: stack.head_out, n_heads: op.n_heads };
        token(ctx, &stack, &product, |binds| {
            binds.read("X", of);
            binds.read("PARTS", parts);
            binds.set("SPLIT", format!("{split}u"));
            binds.write("OUT", out.of());
        })?;
    }
    Ok(())
}
