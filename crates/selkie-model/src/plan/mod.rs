//! The forward pass as a list.
//!
//! A [`Plan`] is a straight list of [`Op`]s over virtual buffers. It has four unknown sizes: rows, the sequences that
//! they belong to, how many positions each sequence holds already, and the rows whose output is wanted. Ops are pure:
//! each writes fresh buffers, and states are explicit operands. Only an executor's memory planner re-uses buffers.

mod build;
mod fuse;
mod memory;
mod op;
mod print;

pub use build::plan;
pub use fuse::fuse;
pub use memory::{Places, in_place, places};
pub use op::{AttentionOp, Op, Product};

/// Names a buffer of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Names a slot of a sequence's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(pub u32);

/// How many rows a buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One a token of the batch.
    All,
    /// One an output that is wanted.
    Outputs,
}

/// A virtual buffer: `[rows, width]` f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// The name that the plan prints; names repeat from layer to layer.
    pub name: &'static str,
    /// How many rows.
    pub rows: Rows,
    /// Values a row.
    pub width: usize,
}

/// What a sequence keeps between forward passes, one slot for each op with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Keys and values of an attention layer, `[n_kv_heads, positions, head_dim]` each.
    KvCache {
        /// Key and value heads.
        n_kv_heads: usize,
        /// Width of a head.
        head_dim: usize,
        /// Positions that are ever looked at, where not all.
        window: Option<usize>,
    },
}

/// The forward pass of one model.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The ops, in order.
    pub ops: Vec<Op>,
    /// For each op, the layer it belongs to; `None` before the first and after the last.
    pub layer_of: Vec<Option<usize>>,
    /// One line for each layer: `attention + dense`.
    pub layers: Vec<String>,
    /// The buffers that ops name.
    pub buffers: Vec<Buffer>,
    /// The slots that ops name.
    pub slots: Vec<Slot>,
    /// The final norm's output for the wanted rows.
    pub hidden: BufferId,
    /// The logits for the wanted rows.
    pub logits: BufferId,
}

impl Plan {
    /// The buffer of that name.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }
}
