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
pub use op::{AttentionOp, CssdOp, DeltaRuleOp, Mamba3Op, Op, OpWeights, Product, SelectiveScanOp, SsdOp};

use crate::spec::{CssdShape, DeltaShape, Mamba3Shape, SsdShape};

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
///
/// Every slot is one array or a few; [`planes`](Self::planes) says which. That layout is also how a saved state has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    /// Keys and values of an attention layer.
    KvCache {
        /// Key and value heads.
        n_kv_heads: usize,
        /// Width of a key head.
        head_dim: usize,
        /// Width of a value head.
        v_head_dim: usize,
        /// Positions that are ever looked at, where not all.
        window: Option<usize>,
    },
    /// The rows before the next, oldest first.
    Conv {
        /// Width of a row.
        channels: usize,
        /// One more than the rows that are kept.
        taps: usize,
    },
    /// A diagonal state for each channel.
    Scan {
        /// Channels.
        channels: usize,
        /// States of each.
        d_state: usize,
    },
    /// A matrix for each head.
    Ssd(SsdShape),
    /// A matrix for each head, with angles and what the trapezoid needs of the last token.
    Mamba3(Mamba3Shape),
    /// A complex matrix for each head.
    Cssd(CssdShape),
    /// A matrix for each value head.
    Delta(DeltaShape),
}

impl Slot {
    /// The arrays of this slot in a state of `positions`: a name and sizes, slowest axis first.
    pub fn planes(&self, positions: usize) -> Vec<(&'static str, Vec<usize>)> {
        match *self {
            Slot::KvCache { n_kv_heads, head_dim, v_head_dim, .. } => {
                vec![("k", vec![positions, n_kv_heads, head_dim]), ("v", vec![positions, n_kv_heads, v_head_dim])]
            }
            Slot::Conv { channels, taps } => vec![("window", vec![taps - 1, channels])],
            Slot::Scan { channels, d_state } => vec![("state", vec![channels, d_state])],
            Slot::Ssd(s) => vec![("state", vec![s.n_heads, s.head_dim, s.d_state])],
            Slot::Mamba3(s) => vec![
                ("angle", vec![s.n_heads, s.n_angles]),
                ("state", vec![s.n_heads, s.head_dim, s.d_state]),
                ("k", vec![s.n_heads, s.rank, s.d_state]),
                ("x", vec![s.n_heads, s.head_dim]),
            ],
            Slot::Cssd(s) => vec![("state", vec![s.n_heads, s.head_dim, s.d_state, 2])],
            Slot::Delta(s) => vec![("state", vec![s.n_v_heads, s.k_dim, s.v_dim])],
        }
    }
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
