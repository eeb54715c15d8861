//! Mamba-3: a token is one dispatch, a workgroup a head; rows are chunks of matrix products between states that are passed from
//! chunk to chunk.

#[cfg(test)]
mod test;

use selkie_model::{
    WeightId,
    plan::{Mamba3Op, Rows},
    rope::Pairing,
    spec::DecayActivation,
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, row},
    kernels::{
        Binds,
        input::{Target, together},
        rows,
    },
    lower::{Input, RowNorm},
    table::{Count, Each, Grid, Of, Ref, Row},
};

/// Invocations of a workgroup.
const THREADS: usize = 256;
/// Channels, states, and pairs of row and rank of a tile.
const TILE: usize = 64;
/// Rows of a chunk at least, and at most, which is what one workgroup sums along at once.
const CHUNK: (usize, usize) = (64, 256);

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, op: &Mamba3Op, b: &Input, c: &Input) -> Result<()> {
    if op.shape.rank > TILE {
        let what = format!("a rank of {} is more than {TILE}", op.shape.rank);
        return Err(Error::Op { op: "mamba3".into(), what });
    }
    match ctx.target.regime {
        Regime::Token => token(ctx, op, b, c),
        Regime::Block => block(ctx, op, b, c),
    }
}

/// Where the small weights are, one after another: `dt_bias` first.
struct Small {
    of: Ref,
    d: usize,
    b_bias: usize,
    c_bias: usize,
    mimo_x: usize,
    b_norm: usize,
    c_norm: usize,
}

fn small(ctx: &mut Ctx<'_, '_>, op: &Mamba3Op, norms: [Option<WeightId>; 2]) -> Small {
    let s = &op.shape;
    let keys = s.n_heads * s.rank * s.d_state;
    let mimo = op.mimo_x.map_or(0, |_| s.n_heads * s.rank * s.head_dim);
    let mut parts = vec![
        (Some(op.dt_bias), s.n_heads),
        (Some(op.d), s.n_heads),
        (Some(op.b_bias), keys),
        (Some(op.c_bias), keys),
        (op.mimo_x, mimo),
    ];
    parts.extend(norms.map(|weight| (weight, weight.map_or(0, |_| s.d_state))));
    let ends: Vec<usize> = parts
        .iter()
        .scan(0, |end, part| {
            *end += part.1;
            Some(*end)
        })
        .collect();
    let of = Ref::Vector(ctx.vector_of(&parts, false));
    Small { of, d: ends[0], b_bias: ends[1], c_bias: ends[2], mimo_x: ends[3], b_norm: ends[4], c_norm: ends[5] }
}

/// Where a row's values are.
struct Values {
    of: Ref,
    /// x, dt, a, trap, angle, and for a token B and C.
    at: Vec<usize>,
    stride: usize,
}

/// Where B and C are, normed for rows, and their norms' eps.
#[derive(Clone, Copy, Default)]
struct Sides {
    b: usize,
    c: usize,
    stride: usize,
    eps: [f32; 2],
}

/// Where scalars, angles and states of chunks are in the scratch buffer.
#[derive(Clone, Copy, Default)]
struct Work {
    steps: usize,
    angles: usize,
    states: usize,
    chunk: usize,
}

/// The words of `Params` in common.wgsl.
fn params(op: &Mamba3Op, values: &Values, sides: Sides, out: View, small: &Small, work: Work) -> Vec<u32> {
    let before = [
        values.stride,
        values.at[0],
        values.at[1],
        values.at[2],
        values.at[3],
        values.at[4],
        sides.b,
        sides.c,
        sides.stride,
        out.offset,
        out.stride,
        small.d,
        small.b_bias,
        small.c_bias,
        small.mimo_x,
        small.b_norm,
        small.c_norm,
        op.shape.n_groups,
    ];
    let floats = [op.shape.a_floor, sides.eps[0], sides.eps[1]].map(f32::to_bits);
    let after = [work.steps, work.angles, work.states, work.chunk];
    before.iter().map(|&word| word as u32).chain(floats).chain(after.map(|word| word as u32)).collect()
}

/// Defines of the sizes.
fn shape(ctx: &Ctx<'_, '_>, op: &Mamba3Op) -> Binds {
    let s = &op.shape;
    let mut binds = Binds::new(ctx.defines());
    let sizes = [
        ("HEADS", s.n_heads),
        ("HEAD_DIM", s.head_dim),
        ("D_STATE", s.d_state),
        ("RANK", s.rank),
        ("ANGLES", s.n_angles),
    ];
    sizes.iter().for_each(|(name, size)| binds.set(name, size));
    let flags = [
        ("MIMO", op.mimo_x.is_some()),
        ("HALVES", s.pairing == Pairing::Halves),
        ("HEAVY_TAIL", s.a_activation == DecayActivation::HeavyTail),
    ];
    flags.iter().filter(|flag| flag.1).for_each(|(name, _)| binds.set(name, 1));
    binds
}

fn token(ctx: &mut Ctx<'_, '_>, op: &Mamba3Op, b: &Input, c: &Input) -> Result<()> {
    let s = &op.shape;
    let norms: [Option<RowNorm>; 2] = [b.norm, c.norm];
    let small = small(ctx, op, norms.map(|norm| norm.and_then(|norm| norm.weight)));
    let (of, views) = together(ctx, &[op.x, op.dt, op.a, op.trap, op.angle, b.x, c.x], 0)?;
    let values = Values { of, at: views.iter().map(|view| view[0]).collect(), stride: views[0][1] };
    let eps = norms.map(|norm| norm.map_or(0.0, |norm| norm.eps));
    let sides = Sides { b: values.at[5], c: values.at[6], stride: values.stride, eps };
    let out = ctx.view(op.out)?;

    let mut binds = shape(ctx, op);
    binds.read("VALUES", values.of);
    binds.read("SMALL", small.of);
    binds.write("OUT", out.of());
    for (name, norm) in ["B", "C"].iter().zip(norms) {
        binds.set(&format!("{name}_NORMED"), norm.is_some());
        if norm.is_some_and(|norm| norm.weight.is_some()) {
            binds.set(&format!("{name}_WEIGHT"), 1);
        }
    }
    if s.d_state.is_multiple_of(4) {
        binds.set("D_STATE_ALIGNED", 1);
    }
    // A power of two of invocations for each channel, four at least: they read 64 bytes of a state's row at once.
    let lanes = (THREADS / s.head_dim.next_power_of_two().min(THREADS)).clamp(4, 64);
    binds.set("LANES", lanes);
    let norms = (2 * s.rank).next_power_of_two();
    binds.set("NORMS", norms);
    // Keys, older keys and queries of all ranks take what sums, factors and angles leave of the workgroup's memory.
    let taken = 4 * THREADS + 4 * norms + 8 * s.n_angles + 64;
    let room = (ctx.target.limits.workgroup_memory as usize).saturating_sub(taken) / (3 * 4 * s.rank) / 4 * 4;
    if room == 0 {
        let what = format!("{} angles leave no room for states", s.n_angles);
        return Err(Error::Op { op: "mamba3".into(), what });
    }
    let tile = room.min(s.d_state.next_multiple_of(4));
    binds.set("TILE", tile);
    binds.set("EACH", (tile / 4).div_ceil(lanes));
    let params = params(op, &values, sides, out, &small, Work::default());
    let grid = Grid::Line(Count::fixed(s.n_heads));
    let made = row("mamba3 of a row", "kernels/mamba3/token.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, slot: Some(op.state), each: Each::Sequence, ..made });
    Ok(())
}

fn block(ctx: &mut Ctx<'_, '_>, op: &Mamba3Op, b: &Input, c: &Input) -> Result<()> {
    let s = &op.shape;
    let rows = ctx.max_rows;
    let bc = s.rank * s.n_groups * s.d_state;
    let steps = 0;
    let angles = steps + 3 * rows * s.n_heads;
    let bc_at = angles + 2 * rows * s.n_heads * s.n_angles;
    let states = bc_at + 2 * rows * bc;
    // Longer chunks where the states of all of them would be too large to bind.
    let limit = ctx.target.limits.binding.min(ctx.target.limits.buffer);
    let bytes = |chunk: usize| 4 * (states + rows / chunk * s.n_heads * s.head_dim * s.d_state) as u64;
    let mut chunk = CHUNK.0;
    while chunk < CHUNK.1 && bytes(chunk) > limit {
        chunk *= 2;
    }
    if bytes(chunk) > limit {
        return Err(Error::Limit {
            what: "the states of a block's chunks in mamba3".into(),
            wanted: bytes(chunk),
            limit,
            device: "this device".into(),
            hint: "smaller blocks of rows need less".into(),
        });
    }
    let of = ctx.scratch(0, bytes(chunk));
    for (i, side) in [b, c].into_iter().enumerate() {
        rows::emit_to(ctx, side, None, Target { of, offset: bc_at + i * bc, stride: 2 * bc }, Rows::All)?;
    }
    let small = small(ctx, op, [None; 2]);
    let (values_of, views) = together(ctx, &[op.x, op.dt, op.a, op.trap, op.angle], 1)?;
    let values = Values { of: values_of, at: views.iter().map(|view| view[0]).collect(), stride: views[0][1] };
    let sides = Sides { b: bc_at, c: bc_at + bc, stride: 2 * bc, eps: [0.0; 2] };
    let out = ctx.view(op.out)?;
    let params = params(op, &values, sides, out, &small, Work { steps, angles, states, chunk });

    let bind = |ctx: &Ctx<'_, '_>, weights: bool| {
        let mut binds = shape(ctx, op);
        binds.write("WORK", of);
        if weights {
            binds.read("VALUES", values.of);
            binds.read("SMALL", small.of);
        }
        binds
    };
    let tiles = |n: usize| n.div_ceil(TILE);
    let each = Each::Sequence;
    let slot = Some(op.state);
    let more = Some((Of::Own, chunk as u32 + 1));

    let mut binds = bind(ctx, true);
    binds.set("WIDE", s.n_angles.next_power_of_two().min(THREADS));
    let grid = Grid::Line(Count::fixed(s.n_heads));
    let made = row("mamba3, scalars and angles", "kernels/mamba3/prefix.wgsl", binds.defines);
    ctx.push(Row { params: params.clone(), bindings: binds.list, grid, slot, each, ..made });

    let parts = s.n_heads * tiles(s.head_dim) * tiles(s.d_state);
    let binds = bind(ctx, true);
    let grid = Grid::Block([Count::fixed(parts), Count::new(1, Of::Own, chunk), Count::fixed(1)]);
    let made = row("mamba3, what chunks add", "kernels/mamba3/states.wgsl", binds.defines);
    ctx.push(Row { params: params.clone(), bindings: binds.list, grid, each, from: more, ..made });

    let binds = bind(ctx, false);
    let grid = Grid::Line(Count::fixed((s.n_heads * s.head_dim * s.d_state).div_ceil(256)));
    let made = row("mamba3, states of chunks", "kernels/mamba3/pass.wgsl", binds.defines);
    ctx.push(Row { params: params.clone(), bindings: binds.list, grid, slot, each, from: more, ..made });

    let mut binds = bind(ctx, true);
    binds.write("OUT", out.of());
    let tile_rows = TILE / s.rank.next_power_of_two();
    binds.set("ROWS", tile_rows);
    let parts_out = Count::fixed(s.n_heads * tiles(s.head_dim));
    let grid = Grid::Block([parts_out, Count::new(1, Of::Own, tile_rows), Count::fixed(1)]);
    let made = row("mamba3, results", "kernels/mamba3/output.wgsl", binds.defines);
    ctx.push(Row { params: params.clone(), bindings: binds.list, grid, slot, each, ..made });

    let mut binds = bind(ctx, true);
    binds.set("LAST", 1);
    let grid = Grid::Block([Count::fixed(parts), Count::fixed(1), Count::fixed(1)]);
    let made = row("mamba3, the new state", "kernels/mamba3/states.wgsl", binds.defines);
    ctx.push(Row { params, bindings: binds.list, grid, slot, each, ..made });
    Ok(())
}
