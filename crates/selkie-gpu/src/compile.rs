//! From a plan to a table of dispatches, without a device: which places values have, and which kernels run over them.

use std::collections::{HashMap, HashSet};

use selkie_model::{
    ModelSpec, Plan, WeightId,
    plan::{BufferId, Rows},
};

use crate::{
    Error, Flavours, Limits, Result, Shader, kernels,
    lower::{Lazy, Lowered, Then, lower},
    preprocess::Defines,
    table::{Count, Grid, Of, Ref, Row},
    weights::{Needed, Piece, VectorId, VectorKey},
};

/// For which batches a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// One row: a token of one sequence.
    Token,
    /// Any rows of any sequences, up to the program's rows.
    Block,
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// For which batches.
    pub regime: Regime,
    /// What the device allows.
    pub limits: Limits,
    /// What it can do.
    pub flavours: Flavours,
    /// f32 throughout, where the default rounds activations to 8 bits for quantised weights, and caches to f16.
    pub exact: bool,
}

/// Where values lie: `[rows, stride]` in a place, from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The place.
    pub place: usize,
    /// The first value of a row.
    pub offset: usize,
    /// From a row to the next.
    pub stride: usize,
    /// Values in a row.
    pub width: usize,
    /// Which rows.
    pub rows: Rows,
}

impl View {
    /// The buffer.
    pub fn of(&self) -> Ref {
        Ref::Place(self.place)
    }

    /// What counts its rows.
    pub fn count(&self) -> Of {
        match self.rows {
            Rows::All => Of::Rows,
            Rows::Outputs => Of::Outputs,
        }
    }
}

/// A plan for a device: the table, and the room it needs.
#[derive(Clone, Debug)]
pub struct Program {
    /// The dispatches.
    pub rows: Vec<Row>,
    /// Places: which rows, and values in each.
    pub places: Vec<(Rows, usize)>,
    /// Bytes of scratch buffers.
    pub scratch: Vec<u64>,
    /// Dispatches before this one give the hidden rows.
    pub until_hidden: usize,
    /// Where the hidden rows are.
    pub hidden: View,
    /// Where the logits are.
    pub logits: View,
}

/// What the dispatchers of kernels are given.
pub struct Ctx<'a, 'n> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// Its plan.
    pub plan: &'a Plan,
    /// What the program is made for.
    pub target: Target,
    /// Rows of a batch at most.
    pub max_rows: usize,
    /// Positions of a sequence at most.
    pub max_positions: usize,
    /// The weights that are read.
    pub needed: &'a mut Needed<'n>,
    views: HashMap<BufferId, View>,
    /// Buffers whose values are stored rounded to 8 bits, since only products read them.
    rounded: HashSet<BufferId>,
    scratch: Vec<u64>,
    rows: Vec<Row>,
    layer: Option<usize>,
}

impl Ctx<'_, '_> {
    /// Where a buffer's values are.
    ///
    /// # Errors
    /// Where nothing writes it.
    pub fn view(&self, id: BufferId) -> Result<View> {
        let missing = || Error::Op { op: self.plan.buffer(id).name.into(), what: "is read but never written".into() };
        self.views.get(&id).copied().ok_or_else(missing)
    }

    /// Whether a buffer's values are stored rounded to 8 bits.
    pub fn is_rounded(&self, id: BufferId) -> bool {
        self.rounded.contains(&id)
    }

    /// A small weight, in f32.
    pub fn vector(&mut self, id: WeightId) -> Ref {
        let len = self.needed.shape(id).iter().product();
        Ref::Vector(self.vector_of(&[(Some(id), len)], false))
    }

    /// Small weights one after another, or in turns.
    pub fn vector_of(&mut self, parts: &[(Option<WeightId>, usize)], in_turns: bool) -> VectorId {
        self.needed.vector(VectorKey { parts: parts.to_vec(), in_turns })
    }

    /// Room of `bytes` for values between this op's dispatches; what has another index is another buffer.
    pub fn scratch(&mut self, index: usize, bytes: u64) -> Ref {
        if self.scratch.len() <= index {
            self.scratch.resize(index + 1, 16);
        }
        self.scratch[index] = self.scratch[index].max(bytes);
        Ref::Scratch(index)
    }

    /// Adds a dispatch.
    pub fn push(&mut self, row: Row) {
        self.rows.push(Row { layer: self.layer, ..row });
    }

    /// Defines that every kernel gets.
    pub fn defines(&self) -> Defines {
        let flavours = self.target.flavours;
        // Where shaders have half floats, subnormal ones are read as what they are.
        let defines = Defines::new().flag("FAST_HALVES", flavours.f16);
        match flavours.subgroup {
            Some(size) => defines.set("SUBGROUP", size),
            None => defines,
        }
    }
}

/// A row with what most have; the rest is filled in by `..`.
pub fn row(kernel: &'static str, file: &'static str, defines: Defines) -> Row {
    Row {
        kernel,
        layer: None,
        shader: Shader::new(file, defines),
        params: vec![],
        bindings: vec![],
        slot: None,
        cut: 0,
        more_slots: vec![],
        each: crate::table::Each::Batch,
        grid: Grid::Line(Count::fixed(1)),
        from: None,
        until: None,
    }
}

/// Compiles `plan` for `target`.
///
/// # Errors
/// Where a weight has no decoder, or something exceeds the device's limits however it is cut.
pub fn compile(
    spec: &ModelSpec,
    plan: &Plan,
    target: Target,
    max_rows: usize,
    max_positions: usize,
    needed: &mut Needed<'_>,
) -> Result<Program> {
    let one = target.regime == Regime::Token;
    let latent = one && target.limits.storage_buffers >= kernels::attention::LATENT_BUFFERS;
    let lazy = Lazy { products: one, attention: one, latent, scan: one, one_row: one };
    let lowered = lower(plan, lazy);
    let (views, places) = place(plan, &lowered);
    let rounded = rounded(&lowered, plan, &target, needed);
    let mut ctx = Ctx {
        spec,
        plan,
        target,
        max_rows,
        max_positions,
        needed,
        views,
        rounded,
        scratch: vec![],
        rows: vec![],
        layer: None,
    };
    let mut until_hidden = 0;
    for (lowered, layer) in &lowered {
        ctx.layer = *layer;
        kernels::emit(&mut ctx, lowered)?;
        if lowered.writes().contains(&plan.hidden) {
            until_hidden = ctx.rows.len();
        }
    }
    let (hidden, logits) = (ctx.view(plan.hidden)?, ctx.view(plan.logits)?);
    // How many rows of outputs there are is known to who makes their places.
    let of_places = places.iter().filter(|place| place.0 == Rows::All).map(|place| 4 * (max_rows * place.1) as u64);
    let largest = ctx.scratch.iter().copied().chain(of_places).max().unwrap_or(0);
    if largest > target.limits.binding {
        return Err(Error::Limit {
            what: format!("values of {max_rows} rows and {max_positions} positions"),
            wanted: largest,
            limit: target.limits.binding,
            device: "this device".into(),
            hint: "blocks of fewer rows, or a shorter context, need less".into(),
        });
    }
    Ok(Program { rows: ctx.rows, places, scratch: ctx.scratch, until_hidden, hidden, logits })
}

/// Compiles `plan` for blocks of as many rows as the device's limits allow, `most` where they do; gives how many that are.
///
/// # Errors
/// As [`compile`].
pub fn compile_block(
    spec: &ModelSpec,
    plan: &Plan,
    target: Target,
    most: usize,
    max_positions: usize,
    needed: &mut Needed<'_>,
) -> Result<(Program, usize)> {
    let mut rows = most.max(2);
    loop {
        match compile(spec, plan, target, rows, max_positions, needed) {
            Err(Error::Limit { .. }) if rows > 2 => rows = rows.div_ceil(2),
            made => return made.map(|program| (program, rows)),
        }
    }
}

/// Gives every buffer that is written a view. Buffers that one op writes share a place; a place is taken again once
/// nothing in it is read any more. What an op writes never shares a place with what it reads, unless it writes over it.
fn place(plan: &Plan, lowered: &[(Lowered, Option<usize>)]) -> (HashMap<BufferId, View>, Vec<(Rows, usize)>) {
    let mut last_read: HashMap<BufferId, usize> = HashMap::new();
    for (at, (op, _)) in lowered.iter().enumerate() {
        op.reads().into_iter().for_each(|id| {
            last_read.insert(id, at);
        });
    }
    for kept in [plan.hidden, plan.logits] {
        last_read.insert(kept, lowered.len());
    }
    let mut views: HashMap<BufferId, View> = HashMap::new();
    let mut places: Vec<(Rows, usize)> = vec![];
    let mut taken: Vec<Vec<BufferId>> = vec![];
    for (at, (op, _)) in lowered.iter().enumerate() {
        let mut outs = op.writes();
        // A buffer that is made in two steps keeps its place.
        outs.retain(|id| !views.contains_key(id));
        let Some(&first) = outs.first() else { continue };
        let rows = plan.buffer(first).rows;
        let alone = |id: BufferId| views.get(&id).is_some_and(|view: &View| taken[view.place].len() == 1);
        let over = op.over().filter(|id| {
            last_read.get(id) == Some(&at)
                && alone(*id)
                && outs.len() == 1
                && plan.buffer(*id).rows == rows
                && op.reads().iter().filter(|read| *read == id).count() == 1
        });
        let place = match over.and_then(|id| views.get(&id)) {
            Some(view) => view.place,
            None => {
                let free = |p: &usize| {
                    places[*p].0 == rows && taken[*p].iter().all(|id| last_read.get(id).is_none_or(|&last| last < at))
                };
                (0..places.len()).find(free).unwrap_or_else(|| {
                    places.push((rows, 0));
                    taken.push(vec![]);
                    places.len() - 1
                })
            }
        };
        let mut width = 0;
        taken[place].clone_from(&outs);
        for id in &outs {
            let view = View { place, offset: width, stride: 0, width: plan.buffer(*id).width, rows };
            views.insert(*id, view);
            width += plan.buffer(*id).width.next_multiple_of(4);
        }
        places[place].1 = places[place].1.max(width);
    }
    // Rows of a place are as wide as its widest, so that views of it never depend on what else was there.
    views.values_mut().for_each(|view| view.stride = places[view.place].1);
    (views, places)
}

/// What gated products leave and only products with quantised weights read, as it is: those round it to 8 bits, which is
/// done once instead of in every workgroup.
fn rounded(
    lowered: &[(Lowered, Option<usize>)],
    plan: &Plan,
    target: &Target,
    needed: &Needed<'_>,
) -> HashSet<BufferId> {
    if target.regime != Regime::Token || target.exact || !target.flavours.packed_dot {
        return HashSet::new();
    }
    let blocks = |id: WeightId| {
        let runs = needed.runs(id);
        runs.iter().all(|(dtype, _)| dtype.is_quantised() && *dtype == runs[0].0)
    };
    let made = lowered.iter().filter_map(|(op, _)| match op {
        Lowered::Products { products, then: Then::Glu { out, .. }, .. } => {
            let types: Vec<_> = products.iter().flat_map(|p| needed.runs(p.weight)).map(|run| run.0).collect();
            types.iter().all(|dtype| *dtype == types[0]).then_some(*out)
        }
        _ => None,
    });
    let reads = |op: &Lowered, id: BufferId| match op {
        Lowered::Products { input, products, .. } if input.reads().contains(&id) => {
            Some(input.is_plain() && products.iter().all(|p| blocks(p.weight)))
        }
        _ => op.reads().contains(&id).then_some(false),
    };
    made.filter(|&id| {
        let mut readers = lowered.iter().filter_map(|(op, _)| reads(op, id));
        plan.buffer(id).width.is_multiple_of(32) && readers.all(|fits| fits)
    })
    .collect()
}

/// The rows of a product's weights as a matrix lists them: padded to a multiple of four, so that rows of values stay aligned.
pub fn whole_piece(needed: &Needed<'_>, id: WeightId) -> Piece {
    let rows = needed.shape(id).iter().rev().skip(1).product::<usize>();
    Piece { weight: id, first: 0, rows, padding: rows.next_multiple_of(4) - rows }
}

impl Then {
    /// The word in shaders' defines.
    pub fn word(&self) -> &'static str {
        match self {
            Then::Store => "store",
            Then::Glu { .. } => "glu",
            Then::Add { .. } => "add",
        }
    }
}
