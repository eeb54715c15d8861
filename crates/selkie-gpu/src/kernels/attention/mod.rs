//! Attention over a sequence's cache: parts of the cache for a token, tiles of it for blocks of rows.

mod latent;
#[cfg(test)]
mod test;

pub(crate) use latent::BUFFERS as LATENT_BUFFERS;
pub(super) use latent::token as latent_token;
use selkie_model::{
    plan::{AttentionOp, Rows},
    rope::Pairing,
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, row},
    kernels::{Binds, input::Target, rows},
    lower::{Function, Gate, Input},
    state::{PlaneShape, UNITS, cut_positions},
    table::{Count, Each, Grid, Of, Ref, Row},
};

/// Positions of the cache that a workgroup takes.
const SPLIT: usize = 256;
/// The most that one takes.
const MOST: usize = 1024;

/// Positions of the cache that a workgroup takes, which cuts of the cache are made of: more where parts of the longest sequence's
/// results would take more than a kernel may see of a buffer.
pub(super) fn split(ctx: &Ctx<'_, '_>, op: &AttentionOp) -> Result<usize> {
    let cut = cut_of(ctx, op)?;
    let whole = |split: &usize| cut >= ctx.max_positions || cut.is_multiple_of(*split);
    let least = if whole(&SPLIT) { SPLIT } else { UNITS[UNITS.len() - 1] };
    let splits = std::iter::successors(Some(least), |split| Some(2 * split));
    let splits: Vec<usize> = splits.take_while(|split| *split <= MOST && whole(split)).collect();
    let fits = |split: &usize| part_bytes(ctx, op, *split) <= ctx.target.limits.binding;
    Ok(splits.iter().copied().find(fits).or(splits.last().copied()).unwrap_or(least))
}

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, op: &AttentionOp, q: &Input, k: &Input) -> Result<()> {
    if op.v_head_dim.div_ceil(4) > 128 {
        let what = format!("values of {} channels a head are too wide for it", op.v_head_dim);
        return Err(Error::Op { op: "attention".into(), what });
    }
    match ctx.target.regime {
        Regime::Token => {
            let out = ctx.view(op.out)?;
            let parts = token(ctx, op, [q, k], out.into())?;
            combine(ctx, op, out, parts)
        }
        Regime::Block => block(ctx, op),
    }
}

/// What both kernels are told of the op.
fn shape(ctx: &Ctx<'_, '_>, op: &AttentionOp) -> Binds {
    let mut binds = Binds::new(ctx.defines());
    let sizes = [
        ("N_HEADS", op.n_heads),
        ("N_KV_HEADS", op.n_kv_heads),
        ("HEAD_DIM", op.head_dim),
        ("V_DIM", op.v_head_dim),
        ("K_QUADS", op.head_dim.div_ceil(4)),
        ("V_QUADS", op.v_head_dim.div_ceil(4)),
    ];
    sizes.iter().for_each(|(name, size)| binds.set(name, format!("{size}u")));
    if !ctx.target.exact {
        binds.set("HALF", 1);
    }
    binds
}

/// What a token's kernel is told besides.
fn token_defines(ctx: &Ctx<'_, '_>, split: usize, binds: &mut Binds) {
    binds.set("SPLIT", format!("{split}u"));
    // Invocations that share a position: they add up without waiting for others, so only within a subgroup.
    let share = ctx.target.flavours.subgroup.map_or(1, |size| size.min(8));
    binds.set("SHARE", format!("{share}u"));
}

/// A head's values where a token's kernel reads them, and what it does to them.
struct Side {
    offset: usize,
    norm: Option<crate::lower::RowNorm>,
    clamp: f32,
    rope: Option<usize>,
}

/// Makes what the kernel cannot, and says where the rest is.
fn side(ctx: &mut Ctx<'_, '_>, input: &Input, together: bool, scratch: usize) -> Result<(Side, Ref)> {
    let view = ctx.view(input.x)?;
    let unturned = Input { rope: None, ..input.clone() };
    if together || unturned.is_plain() {
        let clamp = [input.before, input.after].into_iter().flatten().find_map(|gate| match gate {
            Gate::Of(Function::Clamp(limit)) => Some(limit),
            _ => None,
        });
        let norm = input.norm;
        let rope = input.rope.map(|rope| rope.0);
        return Ok((Side { offset: view.offset, norm, clamp: clamp.unwrap_or(0.0), rope }, view.of()));
    }
    let bytes = 4 * view.width as u64;
    let made = ctx.scratch(scratch, bytes);
    let target = Target { of: made, offset: 0, stride: view.width };
    rows::emit_to(ctx, &unturned, None, target, Rows::All)?;
    Ok((Side { offset: 0, norm: None, clamp: 0.0, rope: input.rope.map(|rope| rope.0) }, made))
}

/// Makes queries and keys, all but turned, and copies values, so that all of them lie together.
fn gathered(ctx: &mut Ctx<'_, '_>, inputs: [&Input; 3]) -> Result<([Side; 3], Ref)> {
    let views = [ctx.view(inputs[0].x)?, ctx.view(inputs[1].x)?, ctx.view(inputs[2].x)?];
    let starts = [0, views[0].width, views[0].width + views[1].width];
    let of = ctx.scratch(2, 4 * (starts[2] + views[2].width) as u64);
    for (input, offset) in inputs.into_iter().zip(starts) {
        let unturned = Input { rope: None, ..input.clone() };
        rows::emit_to(ctx, &unturned, None, Target { of, offset, stride: 0 }, Rows::All)?;
    }
    let side = |i: usize| Side { offset: starts[i], norm: None, clamp: 0.0, rope: inputs[i].rope.map(|rope| rope.0) };
    Ok(([side(0), side(1), side(2)], of))
}

/// The dispatch for one row, whose results go to `out` where a [`split`] is enough; where they are not, parts of
/// results are in the buffer that this gives.
pub(super) fn token(ctx: &mut Ctx<'_, '_>, op: &AttentionOp, [q, k]: [&Input; 2], out: Target) -> Result<Ref> {
    let (q_view, k_view, v) = (ctx.view(q.x)?, ctx.view(k.x)?, ctx.view(op.v)?);
    let fits = |input: &Input| input.norm.is_none_or(|norm| norm.weight.is_some());
    let together = q_view.place == k_view.place && k_view.place == v.place && fits(q) && fits(k);
    // Apart they are two buffers more: results, their parts and the cache are four, and there may be angles, norms and sinks.
    let more = [q.rope.or(k.rope).is_some(), q.norm.or(k.norm).is_some(), op.sinks.is_some()];
    let buffers = 7 + more.into_iter().filter(|&more| more).count();
    let ([q_side, k_side, v_side], [q_of, k_of, v_of]) =
        if !together && buffers > ctx.target.limits.storage_buffers as usize {
            let (sides, of) = gathered(ctx, [q, k, &Input::plain(op.v)])?;
            (sides, [of; 3])
        } else {
            let (q, q_of) = side(ctx, q, together, 2)?;
            let (k, k_of) = side(ctx, k, together, 3)?;
            ([q, k, Side { offset: v.offset, norm: None, clamp: 0.0, rope: None }], [q_of, k_of, v.of()])
        };
    let mut binds = shape(ctx, op);
    let split = split(ctx, op)?;
    token_defines(ctx, split, &mut binds);
    binds.read("Q", q_of);
    if [k_of, v_of] != [q_of; 2] {
        binds.read("K", k_of);
        binds.read("V", v_of);
    }
    let norms = [&q_side, &k_side].map(|side| side.norm);
    if norms.iter().any(Option::is_some) {
        let missing = || Error::Op { op: "attention".into(), what: "norms of heads need weights".into() };
        let mut weights = vec![];
        let views = [q_view, k_view];
        for ((norm, view), name) in norms.iter().zip(views).zip(["Q", "K"]) {
            let Some(norm) = norm else {
                weights.push((None, op.head_dim));
                continue;
            };
            let id = norm.weight.ok_or_else(missing)?;
            let len: usize = ctx.needed.shape(id).iter().product();
            weights.push((Some(id), len));
            binds.set(&format!("{name}_EACH"), len > op.head_dim);
            binds.set(&format!("{name}_WHOLE"), norm.group == view.width && view.width > op.head_dim);
        }
        for name in ["Q_EACH", "Q_WHOLE", "K_EACH", "K_WHOLE"] {
            if binds.defines.get(name).is_none() {
                binds.set(name, false);
            }
        }
        binds.set("K_WEIGHTS", format!("{}u", weights[0].1));
        let both = ctx.vector_of(&weights, false);
        binds.read("NORMS", Ref::Vector(both));
    }
    if let Some(rope) = q_side.rope.or(k_side.rope) {
        binds.read("ANGLES", Ref::Angles(rope));
        let spec = &ctx.spec.ropes[rope];
        binds.set("PAIRS", format!("{}u", spec.n_dims / 2));
        if spec.pairing == Pairing::Interleaved {
            binds.set("INTERLEAVED", 1);
        }
    }
    let flags = [
        ("Q_NORMED", q_side.norm.is_some()),
        ("K_NORMED", k_side.norm.is_some()),
        ("Q_TURNED", q_side.rope.is_some()),
        ("K_TURNED", k_side.rope.is_some()),
    ];
    flags.iter().for_each(|(name, on)| binds.set(name, on));
    sinks(ctx, &mut binds, op);
    binds.write("OUT", out.of);
    let bytes = part_bytes(ctx, op, split);
    let parts = ctx.scratch(0, bytes);
    binds.write("PARTS", parts);
    let params = vec![
        q_side.offset as u32,
        k_side.offset as u32,
        v_side.offset as u32,
        out.offset as u32,
        op.window.unwrap_or(0) as u32,
        op.scale.to_bits(),
        op.softcap.unwrap_or(0.0).to_bits(),
        norms[0].map_or(0.0, |norm| norm.eps).to_bits(),
        norms[1].map_or(0.0, |norm| norm.eps).to_bits(),
        q_side.clamp.to_bits(),
        k_side.clamp.to_bits(),
    ];
    let grid = Grid::Line(Count::new(op.n_heads, Of::Length, split));
    let made = row("attention of a row", "kernels/attention/token.wgsl", binds.defines);
    push_cuts(ctx, op, Row { params, bindings: binds.list, grid, ..made })?;
    Ok(parts)
}

/// Bytes of all parts of the longest sequence.
fn part_bytes(ctx: &Ctx<'_, '_>, op: &AttentionOp, split: usize) -> u64 {
    let stride = 4 * op.v_head_dim.div_ceil(4) + 2;
    4 * (ctx.max_positions.div_ceil(split) * op.n_heads * stride) as u64
}

/// Positions of a cut of the cache.
fn cut_of(ctx: &Ctx<'_, '_>, op: &AttentionOp) -> Result<usize> {
    let slot = &ctx.plan.slots[op.cache.0 as usize];
    let (limits, exact) = (ctx.target.limits, ctx.target.exact);
    let least = UNITS[UNITS.len() - 1];
    let refused = || Error::Limit {
        what: format!("{least} positions of a cache"),
        wanted: PlaneShape::of(slot, exact).iter().map(|shape| shape.bytes(least)).max().unwrap_or(0),
        limit: limits.binding,
        device: "this device".into(),
        hint: String::new(),
    };
    cut_positions(slot, exact, &limits).ok_or_else(refused)
}

/// The positions of each cut of the cache. Parts of results are of one cut each.
fn cuts(ctx: &Ctx<'_, '_>, op: &AttentionOp) -> Result<Vec<[u32; 2]>> {
    let cut = cut_of(ctx, op)?;
    if cut >= ctx.max_positions {
        return Ok(vec![[0, u32::MAX]]);
    }
    Ok((0..ctx.max_positions).step_by(cut).map(|first| [first, first + cut].map(|at| at as u32)).collect())
}

/// A dispatch for each cut of the cache that a sequence reaches.
fn push_cuts(ctx: &mut Ctx<'_, '_>, op: &AttentionOp, made: Row) -> Result<()> {
    for (cut, bounds) in cuts(ctx, op)?.into_iter().enumerate() {
        let params = [&made.params[..], &bounds].concat();
        let from = (cut > 0).then_some((Of::Length, bounds[0] + 1));
        ctx.push(Row { params, from, cut, slot: Some(op.cache), each: Each::Sequence, ..made.clone() });
    }
    Ok(())
}

fn sinks(ctx: &mut Ctx<'_, '_>, binds: &mut Binds, op: &AttentionOp) {
    if let Some(sinks) = op.sinks {
        let sinks = ctx.vector(sinks);
        binds.read("SINKS", sinks);
    }
}

fn combine(ctx: &mut Ctx<'_, '_>, op: &AttentionOp, out: View, parts: Ref) -> Result<()> {
    let mut binds = shape(ctx, op);
    let split = split(ctx, op)?;
    binds.set("SPLIT", format!("{split}u"));
    binds.read("PARTS", parts);
    sinks(ctx, &mut binds, op);
    binds.write("OUT", out.of());
    let made = row("attention, parts joined", "kernels/attention/combine.wgsl", binds.defines);
    ctx.push(Row {
        params: vec![out.offset as u32],
        bindings: binds.list,
        grid: Grid::Line(Count::fixed(op.n_heads)),
        each: Each::Sequence,
        from: Some((Of::Length, split as u32 + 1)),
        ..made
    });
    Ok(())
}

fn block(ctx: &mut Ctx<'_, '_>, op: &AttentionOp) -> Result<()> {
    let [q, k, v, out] = [ctx.view(op.q)?, ctx.view(op.k)?, ctx.view(op.v)?, ctx.view(op.out)?];
    let mut binds = shape(ctx, op);
    binds.read("K", k.of());
    binds.read("V", v.of());
    let params = [k.offset, k.stride, v.offset, v.stride].map(|size| size as u32).to_vec();
    let grid = Grid::Line(Count::new(1, Of::Own, 1));
    let made = row("cache", "kernels/attention/append.wgsl", binds.defines);
    push_cuts(ctx, op, Row { params, bindings: binds.list, grid, ..made })?;

    let mut binds = shape(ctx, op);
    // Queries take half of the smallest workgroup memory at most.
    let tile_q = (8192 / (16 * op.head_dim.div_ceil(4))).clamp(2, 32) & !1;
    binds.set("TILE_Q", format!("{tile_q}u"));
    binds.read("Q", q.of());
    sinks(ctx, &mut binds, op);
    binds.write("OUT", out.of());
    if cuts(ctx, op)?.len() > 1 {
        let bytes = 4 * (ctx.max_rows * op.n_heads * (4 * op.v_head_dim.div_ceil(4) + 2)) as u64;
        let kept = ctx.scratch(0, bytes);
        binds.write("KEPT", kept);
    }
    let params = vec![
        q.offset as u32,
        q.stride as u32,
        out.offset as u32,
        out.stride as u32,
        op.window.unwrap_or(0) as u32,
        op.scale.to_bits(),
        op.softcap.unwrap_or(0.0).to_bits(),
    ];
    let grid = Grid::Block([Count::fixed(op.n_heads), Count::new(1, Of::Own, tile_q), Count::fixed(1)]);
    let made = row("attention of rows", "kernels/attention/block.wgsl", binds.defines);
    push_cuts(ctx, op, Row { params, bindings: binds.list, grid, ..made })
}
