//! Mixtures of experts, routed on the device.
//!
//! A token takes three dispatches: the router's products with the norm before them; the first products of the chosen experts,
//! whose workgroups each choose for themselves; their last products with weights, sum and residual. A block of rows is
//! routed, its choices are sorted by expert, and tiles of rows that share an expert are multiplied.

mod block;
#[cfg(test)]
mod test;
mod token;

use std::ops::Range;

use selkie_formats::DType;
use selkie_model::{
    WeightId,
    plan::{BufferId, Rows},
    spec::{Gating, GroupScore, Mixture, Score},
};

use crate::{
    Result,
    compile::{Ctx, Regime, View, whole_piece},
    kernels::{
        Binds,
        product::{self, Epilogue, Together, matrices},
    },
    lower::{Function, Input},
    quant::Format,
    table::Ref,
    weights::{MatrixId, MatrixKey, Piece},
};

/// `out = residual + scale · mixture(input)`, or the mixture alone.
pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    input: &Input,
    m: &Mixture,
    add: Option<(BufferId, f32)>,
    out: BufferId,
) -> Result<()> {
    let out = ctx.view(out)?;
    let add = match add {
        Some((id, scale)) => Some((ctx.view(id)?, scale)),
        None => None,
    };
    match ctx.target.regime {
        Regime::Token => token::emit(ctx, input, m, add, out),
        Regime::Block => block::emit(ctx, input, m, add, out),
    }
}

/// What a mixture's dispatches keep among themselves; products and norms have the numbers below.
mod scratch {
    pub const SCORES: usize = 2;
    pub const HIDDEN: usize = 3;
    pub const GATES: usize = 4;
    pub const INPUT: usize = 5;
    pub const CHOICES: usize = 6;
    pub const FACTORS: usize = 7;
    pub const SORTED: usize = 8;
    pub const DOWN: usize = 9;
}

/// The router's products, `[rows, stride]`: rows of the router and padding.
fn scores(ctx: &mut Ctx<'_, '_>, input: &Input, m: &Mixture, rows: Rows) -> Result<(Ref, usize)> {
    let stride = whole_piece(ctx.needed, m.router).device_rows();
    let of = ctx.scratch(scratch::SCORES, 4 * (ctx.max_rows * stride) as u64);
    let mut offset = 0;
    let ids = matrices(ctx, &[m.router], false)?;
    let whole = ids.len() == 1;
    for matrix in ids {
        let width = ctx.needed.get(matrix).rows;
        let bias = match m.router_bias {
            Some(bias) if whole => Some(Ref::Vector(ctx.vector_of(&[(Some(bias), width)], false))),
            Some(_) => {
                let what = "a bias on a router of several types".into();
                return Err(crate::Error::Op { op: "mixture".into(), what });
            }
            None => None,
        };
        let out = View { place: 0, offset, stride, width, rows };
        // The choice of experts hangs on small differences: the router's input is never rounded.
        let exact = std::mem::replace(&mut ctx.target.exact, true);
        product::run(ctx, input, &Together { matrix, bias, out }, &Epilogue::Scratch(of))?;
        ctx.target.exact = exact;
        offset += width;
    }
    Ok((of, stride))
}

/// Rows of a stack of experts that lie in one buffer.
struct Part {
    matrix: MatrixId,
    chunk: usize,
    /// The first row's number in the stack.
    first: usize,
    rows: usize,
}

/// A stack's parts, of `expert_rows` an expert. Where it has to be cut, it is cut between experts if one fits.
fn parts(
    ctx: &mut Ctx<'_, '_>,
    weights: &[WeightId],
    run: (DType, Range<usize>),
    expert_rows: usize,
) -> Result<Vec<Part>> {
    let (dtype, rows) = run;
    let n = weights.len();
    let piece = |&weight: &WeightId| Piece { weight, first: rows.start, rows: rows.len(), padding: 0 };
    let key = MatrixKey { pieces: weights.iter().map(piece).collect(), in_turns: n > 1 };
    let cols = ctx.needed.shape(weights[0]).last().copied().unwrap_or(0);
    let row_bytes = Format::of(dtype).map_or(0, |format| 4 * format.row_words(cols) as u64);
    let limits = ctx.target.limits;
    let fits = expert_rows as u64 * row_bytes <= limits.binding.min(limits.buffer);
    let matrix = ctx.needed.matrix(key, dtype, if fits { expert_rows } else { 2 * n })?;
    let chunks = ctx.needed.get(matrix).chunks.iter().enumerate();
    let part = |(chunk, range): (usize, &Range<usize>)| Part {
        matrix,
        chunk,
        first: n * rows.start + range.start,
        rows: range.len(),
    };
    Ok(chunks.map(part).collect())
}

/// All parts of one stack.
fn stack(ctx: &mut Ctx<'_, '_>, weight: WeightId, expert_rows: usize) -> Result<Vec<Part>> {
    let runs = ctx.needed.runs(weight);
    let parts: Vec<_> = runs.into_iter().map(|run| parts(ctx, &[weight], run, expert_rows)).collect::<Result<_>>()?;
    Ok(parts.into_iter().flatten().collect())
}

/// A product before the gating, and what becomes of its sums.
struct Wide {
    /// The word in shaders' defines.
    stage: &'static str,
    /// Rows of an expert.
    expert_rows: usize,
    parts: Vec<Part>,
}

/// The products before the gating: gate and up in turns, where both are of one type, or one after the other.
fn wide(ctx: &mut Ctx<'_, '_>, m: &Mixture) -> Result<Vec<Wide>> {
    let Some(gate) = m.gate else {
        return Ok(vec![Wide { stage: "single", expert_rows: m.d_ff, parts: stack(ctx, m.up, m.d_ff)? }]);
    };
    if let ([one], [other]) = (&ctx.needed.runs(gate)[..], &ctx.needed.runs(m.up)[..])
        && one == other
    {
        let expert_rows = 2 * m.d_ff;
        let parts = parts(ctx, &[gate, m.up], one.clone(), expert_rows)?;
        return Ok(vec![Wide { stage: "pairs", expert_rows, parts }]);
    }
    Ok(vec![
        Wide { stage: "gates", expert_rows: m.d_ff, parts: stack(ctx, gate, m.d_ff)? },
        Wide { stage: "gated", expert_rows: m.d_ff, parts: stack(ctx, m.up, m.d_ff)? },
    ])
}

/// The small weights of a mixture, in one buffer: what is added for choosing, biases of gates and of ups.
struct Small {
    of: Option<Ref>,
    gate_bias: usize,
    up_bias: usize,
}

impl Small {
    fn new(ctx: &mut Ctx<'_, '_>, m: &Mixture) -> Self {
        let choice = m.routing.choice_bias.map(|id| (Some(id), m.n_experts));
        let gate_bias = choice.map_or(0, |part| part.1);
        let all = m.n_experts * m.d_ff;
        let biases = m.biases.map(|b| [(Some(b.gate), all), (Some(b.up), all)]);
        let parts: Vec<_> = choice.into_iter().chain(biases.into_iter().flatten()).collect();
        let of = (!parts.is_empty()).then(|| Ref::Vector(ctx.vector_of(&parts, false)));
        Self { of, gate_bias, up_bias: gate_bias + all }
    }
}

/// The constants of `gating.wgsl`: d_ff, gate_bias, up_bias, alpha, limit.
fn bind_gating(binds: &mut Binds, m: &Mixture, small: &Small) -> [u32; 5] {
    if m.biases.is_some() {
        binds.set("BIASES", 1);
    }
    let (alpha, limit) = match m.gating {
        Gating::Plain(activation) => {
            binds.set("GATE_FN", Function::Activation(activation).shader().0);
            (0.0, 0.0)
        }
        Gating::ClampedSwiglu { alpha, limit } => {
            binds.set("CLAMPED", 1);
            (alpha, limit)
        }
    };
    [m.d_ff as u32, small.gate_bias as u32, small.up_bias as u32, alpha.to_bits(), limit.to_bits()]
}

/// What `route.wgsl` is told.
fn route_defines(binds: &mut Binds, m: &Mixture) {
    let routing = &m.routing;
    binds.set("EXPERTS", format!("{}u", m.n_experts));
    binds.set("USED", format!("{}u", m.n_used));
    binds.set(
        "SCORE",
        match routing.score {
            Score::Softmax => "softmax",
            Score::Sigmoid => "sigmoid",
            Score::SoftmaxOfChosen => "softmax_of_chosen",
        },
    );
    if routing.choice_bias.is_some() {
        binds.set("CHOICE_BIAS", 1);
    }
    if routing.renormalise {
        binds.set("RENORMALISE", 1);
    }
    if let Some(groups) = routing.groups {
        binds.set("EXPERT_GROUPS", format!("{}u", groups.n_groups));
        binds.set("GROUPS_USED", format!("{}u", groups.n_used));
        if groups.by == GroupScore::BestTwo {
            binds.set("BEST_TWO", 1);
            binds.set("BY_VALUES", 1);
        }
    }
}

/// The down products' bias, `[n_experts, d_model]`.
fn down_bias(ctx: &mut Ctx<'_, '_>, m: &Mixture) -> Option<Ref> {
    m.biases.map(|b| ctx.vector(b.down))
}
