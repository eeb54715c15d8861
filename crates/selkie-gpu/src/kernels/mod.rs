//! The kernels, one folder each: shader, dispatcher, tests against the reference.

pub(crate) mod attention;
#[cfg(test)]
mod checks;
mod conv;
mod cssd;
mod delta;
mod embed;
mod heads;
mod input;
mod mamba3;
mod measure;
mod mixture;
mod product;
mod ranks;
#[cfg(test)]
mod rig;
mod rope;
mod rows;
pub(crate) mod sample;
mod scan;
mod ssd;
mod take_rows;

pub use measure::Measured;
use selkie_model::plan::Op;

use crate::{
    Error, Result,
    compile::Ctx,
    lower::Lowered,
    preprocess::Defines,
    table::{Bind, Ref},
};

/// Writes the dispatches of one lowered op.
pub(crate) fn emit(ctx: &mut Ctx<'_, '_>, lowered: &Lowered) -> Result<()> {
    match lowered {
        Lowered::Rows { input, add, out } => rows::emit(ctx, input, *add, *out),
        Lowered::Products { input, products, then } => product::emit(ctx, input, products, then),
        Lowered::Attention { op, q, k } => attention::emit(ctx, op, q, k),
        Lowered::SelectiveScan { op, dt, b, c } => scan::emit(ctx, op, dt.as_ref(), b, c),
        Lowered::Corrections(list) => product::corrections(ctx, list),
        Lowered::Convs(convs) => conv::emit(ctx, convs),
        Lowered::Ssd { op, dt_scale } => ssd::emit(ctx, op, *dt_scale),
        Lowered::Mamba3 { op, b, c } => mamba3::emit(ctx, op, b, c),
        Lowered::Latent(op) => heads::latent(ctx, op),
        Lowered::LatentAttention { op, latent, weight, out } => heads::latent_attention(ctx, op, latent, *weight, *out),
        Lowered::HeadAttention { op, q, k, weight, out } => heads::attention(ctx, op, [q, k], *weight, *out),
        Lowered::RankGate(op) => ranks::gate(ctx, op),
        Lowered::Mixture { input, mixture, add, out } => mixture::emit(ctx, input, mixture, *add, *out),
        Lowered::Op(op) => match op {
            Op::Embed { table, scale, out } => embed::emit(ctx, *table, *scale, *out),
            Op::Rope { x, rope, head_dim, out } => rope::emit(ctx, *x, *rope, *head_dim, *out),
            Op::DeltaRule(op) => delta::emit(ctx, op),
            Op::Cssd(op) => cssd::emit(ctx, op),
            Op::TakeRows { x, out } => take_rows::emit(ctx, *x, *out),
            Op::JoinHeads { a, b, n_heads, out } => heads::join(ctx, *a, *b, *n_heads, *out),
            Op::HeadLinear { x, weight, n_heads, out } => heads::linear(ctx, *x, *weight, *n_heads, *out),
            Op::RankExpand { x, weight, head_dim, out } => ranks::expand(ctx, *x, *weight, *head_dim, *out),
            Op::RankReduce { x, weight, head_dim, out } => ranks::reduce(ctx, *x, *weight, *head_dim, *out),
            other => Err(unknown(other.name(), 0)),
        },
    }
}

fn unknown(op: &str, slot: u32) -> Error {
    Error::Op { op: op.into(), what: format!("has no kernel (slot {slot})") }
}

/// Bindings in the order in which they are named, each with its number as the define `B_NAME`.
pub(crate) struct Binds {
    /// So far.
    pub list: Vec<Bind>,
    /// With a `B_NAME` for each.
    pub defines: Defines,
}

impl Binds {
    /// None yet, on top of what `defines` says.
    pub fn new(defines: Defines) -> Self {
        Self { list: vec![], defines }
    }

    /// A buffer that is read.
    pub fn read(&mut self, name: &str, of: Ref) {
        self.push(name, Bind::read(of));
    }

    /// A buffer that is written.
    pub fn write(&mut self, name: &str, of: Ref) {
        self.push(name, Bind::write(of));
    }

    fn push(&mut self, name: &str, bind: Bind) {
        self.list.push(bind);
        self.set(&format!("B_{name}"), self.list.len());
    }

    /// A define.
    pub fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.defines = std::mem::take(&mut self.defines).set(name, value);
    }
}
