//! The gated delta rule: one dispatch for a token or a few; more rows in chunks, of which only the states are walked in order.

#[cfg(test)]
mod test;

use selkie_model::{plan::DeltaRuleOp, spec::DeltaShape};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, row},
    kernels::Binds,
    table::{Count, Each, Grid, Of, Ref, Row},
};

/// From so many rows of a sequence on they are computed in chunks.
const MANY: u32 = 8;
/// Rows of a chunk.
const CHUNK: usize = 32;
/// Invocations of a workgroup that holds columns of a state.
const THREADS: usize = 128;
/// Rows of a state at most: a quad of columns has to fit in workgroup memory with a chunk's.
const MOST_ROWS: usize = 768;

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, op: &DeltaRuleOp) -> Result<()> {
    if op.shape.k_dim > MOST_ROWS {
        let what = format!("keys of {} values are longer than {MOST_ROWS}", op.shape.k_dim);
        return Err(Error::Op { op: "delta_rule".into(), what });
    }
    match ctx.target.regime {
        Regime::Token => steps(ctx, op, None),
        Regime::Block => {
            steps(ctx, op, Some((Of::Own, MANY)))?;
            chunks(ctx, op)
        }
    }
}

/// The largest power of two up to `most` and `n`.
fn power_of_two(n: usize, most: usize) -> usize {
    1 << n.clamp(1, most).ilog2()
}

/// What every kernel is told of the op.
fn shape(ctx: &Ctx<'_, '_>, op: &DeltaRuleOp) -> Result<Binds> {
    let DeltaShape { k_dim, v_dim, .. } = op.shape;
    let mut binds = Binds::new(ctx.defines());
    let sizes = [("K_DIM", k_dim), ("V_DIM", v_dim), ("K_QUADS", k_dim.div_ceil(4)), ("V_QUADS", v_dim.div_ceil(4))];
    sizes.iter().for_each(|(name, size)| binds.set(name, format!("{size}u")));
    if k_dim.is_multiple_of(4) && v_dim.is_multiple_of(4) {
        binds.set("ALIGNED", 1);
    }
    binds.read("QKV", ctx.view(op.qkv)?.of());
    Ok(binds)
}

/// Binds the gates and what they are made with.
fn gates(ctx: &mut Ctx<'_, '_>, binds: &mut Binds, op: &DeltaRuleOp) -> Result<[View; 2]> {
    let [b, a] = [ctx.view(op.b)?, ctx.view(op.a)?];
    binds.read("B", b.of());
    binds.read("A", a.of());
    let n = op.shape.n_v_heads;
    let heads = ctx.vector_of(&[(Some(op.a_weight), n), (Some(op.dt_bias), n)], false);
    binds.read("HEADS", Ref::Vector(heads));
    Ok([b, a])
}

/// What queries of length one are multiplied by.
fn scale(op: &DeltaRuleOp) -> u32 {
    (1.0 / (op.shape.k_dim as f32).sqrt()).to_bits()
}

/// One dispatch, row after row; where there are fewer rows than `until`.
fn steps(ctx: &mut Ctx<'_, '_>, op: &DeltaRuleOp, until: Option<(Of, u32)>) -> Result<()> {
    let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = op.shape;
    let [qkv, out] = [ctx.view(op.qkv)?, ctx.view(op.out)?];
    let quads = power_of_two(v_dim.div_ceil(4), 8);
    let mut binds = shape(ctx, op)?;
    binds.set("QUADS", format!("{quads}u"));
    binds.set("EACH", format!("{}u", k_dim.div_ceil(THREADS / quads)));
    let [b, a] = gates(ctx, &mut binds, op)?;
    binds.write("OUT", out.of());
    let places = [qkv, b, a, out].into_iter().flat_map(|view| [view.offset, view.stride]);
    let sizes = [n_k_heads, n_v_heads].into_iter().chain(places).map(|size| size as u32);
    let params = sizes.chain([scale(op)]).collect();
    let grid = Grid::Line(Count::fixed(n_v_heads * v_dim.div_ceil(4).div_ceil(quads)));
    let made = row("delta rule, step by step", "kernels/delta/steps.wgsl", binds.defines);
    let (slot, each) = (Some(op.state), Each::Sequence);
    ctx.push(Row { params, bindings: binds.list, grid, slot, each, until, ..made });
    Ok(())
}

/// Two dispatches: what chunks need of their rows alone, and the walk from chunk to chunk.
fn chunks(ctx: &mut Ctx<'_, '_>, op: &DeltaRuleOp) -> Result<()> {
    let DeltaShape { n_k_heads, n_v_heads, k_dim, v_dim } = op.shape;
    let [qkv, out] = [ctx.view(op.qkv)?, ctx.view(op.out)?];
    let (k_quads, v_quads) = (k_dim.div_ceil(4), v_dim.div_ceil(4));
    let rows = ctx.max_rows;
    let solved = ctx.scratch(0, 16 * (rows * n_v_heads * (k_quads + v_quads)) as u64);
    let within = ctx.scratch(1, 4 * (rows * n_v_heads * (CHUNK + 4)) as u64);
    let (each, from) = (Each::Sequence, Some((Of::Own, MANY)));

    let mut binds = shape(ctx, op)?;
    binds.set("CHUNK", format!("{CHUNK}u"));
    let [b, a] = gates(ctx, &mut binds, op)?;
    binds.write("SOLVED", solved);
    binds.write("WITHIN", within);
    let sizes = [n_k_heads, n_v_heads, qkv.offset, qkv.stride, b.offset, b.stride, a.offset, a.stride];
    let params = [&sizes.map(|size| size as u32)[..], &[scale(op)]].concat();
    let grid = Grid::Block([Count::fixed(n_v_heads), Count::new(1, Of::Own, CHUNK), Count::fixed(1)]);
    let made = row("delta rule, chunks solved", "kernels/delta/prepare.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, each, from, ..made });

    let mut binds = shape(ctx, op)?;
    // A workgroup's columns of the state take half of the smallest workgroup memory, where a quad is not more.
    let quads = power_of_two((512 / k_dim).min(v_quads), THREADS / CHUNK);
    binds.set("CHUNK", format!("{CHUNK}u"));
    binds.set("QUADS", format!("{quads}u"));
    binds.read("SOLVED", solved);
    binds.read("WITHIN", within);
    binds.write("OUT", out.of());
    let sizes = [n_k_heads, n_v_heads, qkv.offset, qkv.stride, out.offset, out.stride];
    let params = sizes.map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::fixed(n_v_heads * v_quads.div_ceil(quads)));
    let made = row("delta rule of rows", "kernels/delta/walk.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, slot: Some(op.state), each, from, ..made });
    Ok(())
}
