//! The ops with a state: each sequence's rows go through the op with that sequence's slot.

use std::sync::Arc;

use selkie_model::{
    Batch, Result,
    plan::{BufferId, Op, Plan, Slot, SlotId},
};

use super::{CpuExecutor, Slots, op_error, weights::Loaded};
use crate::{
    CacheType, CausalConv, ConvState, Cssd, CssdState, DeltaRule, DeltaState, Error, KvCache, Mamba3, Mamba3Parameters,
    Mamba3State, ScanState, SelectiveScan, Ssd, SsdState,
};

/// The op that a slot belongs to, with its weights as its kernel wants them.
pub(super) enum SlotOp {
    Cache { n_kv_heads: usize, head_dim: usize, v_head_dim: usize },
    Conv(Arc<CausalConv>),
    Scan(Arc<SelectiveScan>),
    Ssd(Arc<Ssd>),
    Mamba3(Arc<Mamba3>),
    Cssd(Arc<Cssd>),
    Delta(Arc<DeltaRule>),
}

/// What a slot holds.
#[derive(Clone)]
pub(super) enum SlotState {
    Cache(KvCache),
    Conv(ConvState),
    Scan(ScanState),
    Ssd(SsdState),
    Mamba3(Mamba3State),
    Cssd(CssdState),
    Delta(DeltaState),
}

/// `$body` with what a recurrent slot holds; `$cache` for a cache.
macro_rules! recurrent {
    ($slot:expr, $cache:pat => $other:expr, $state:ident => $body:expr) => {
        match $slot {
            $cache => $other,
            SlotState::Conv($state) => $body,
            SlotState::Scan($state) => $body,
            SlotState::Ssd($state) => $body,
            SlotState::Mamba3($state) => $body,
            SlotState::Cssd($state) => $body,
            SlotState::Delta($state) => $body,
        }
    };
}

impl SlotOp {
    /// The op of every slot.
    pub fn of(plan: &Plan, weights: &Loaded) -> crate::Result<Vec<Self>> {
        let mut found: Vec<Option<Self>> = plan.slots.iter().map(|_| None).collect();
        for op in &plan.ops {
            let Some(slot) = op.slot() else { continue };
            let layout = &plan.slots[slot.0 as usize];
            let vector = |id| weights.vector(id);
            let own = match (op, *layout) {
                (_, Slot::KvCache { n_kv_heads, head_dim, v_head_dim, .. }) => {
                    SlotOp::Cache { n_kv_heads, head_dim, v_head_dim }
                }
                (Op::CausalConv { weight, bias, silu, .. }, Slot::Conv { channels, taps }) => {
                    let op = CausalConv::new(channels, taps, vector(*weight), bias.map(vector), *silu)?;
                    SlotOp::Conv(Arc::new(op))
                }
                (Op::SelectiveScan(o), Slot::Scan { channels, d_state }) => {
                    let op = SelectiveScan::new(channels, d_state, o.input, vector(o.a), vector(o.d))?;
                    SlotOp::Scan(Arc::new(op))
                }
                (Op::Ssd(o), _) => {
                    SlotOp::Ssd(Arc::new(Ssd::new(o.shape, vector(o.a), vector(o.d), Some(vector(o.dt_bias)))?))
                }
                (Op::Mamba3(o), _) => {
                    let parameters = Mamba3Parameters {
                        dt_bias: vector(o.dt_bias),
                        b_bias: vector(o.b_bias),
                        c_bias: vector(o.c_bias),
                        d: vector(o.d),
                        mimo_x: o.mimo_x.map(vector),
                    };
                    SlotOp::Mamba3(Arc::new(Mamba3::new(o.shape, &parameters)?))
                }
                (Op::Cssd(o), _) => {
                    SlotOp::Cssd(Arc::new(Cssd::new(o.shape, vector(o.a_log), vector(o.d), vector(o.dt_bias))?))
                }
                (Op::DeltaRule(o), _) => {
                    SlotOp::Delta(Arc::new(DeltaRule::new(o.shape, vector(o.a_weight), vector(o.dt_bias))?))
                }
                _ => return Err(Error::Parameter("a slot that is not its op's")),
            };
            found[slot.0 as usize] = Some(own);
        }
        found.into_iter().map(|op| op.ok_or(Error::Parameter("a slot without an op"))).collect()
    }

    /// The state before the first token.
    pub fn state(&self, dtype: CacheType, capacity: usize) -> crate::Result<SlotState> {
        Ok(match self {
            &SlotOp::Cache { n_kv_heads, head_dim, v_head_dim } => {
                SlotState::Cache(KvCache::new(dtype, n_kv_heads, head_dim, v_head_dim, capacity)?)
            }
            SlotOp::Conv(op) => SlotState::Conv(ConvState::new(op.clone())),
            SlotOp::Scan(op) => SlotState::Scan(ScanState::new(op.clone())),
            SlotOp::Ssd(op) => SlotState::Ssd(SsdState::new(op.clone())),
            SlotOp::Mamba3(op) => SlotState::Mamba3(Mamba3State::new(op.clone())),
            SlotOp::Cssd(op) => SlotState::Cssd(CssdState::new(op.clone())),
            SlotOp::Delta(op) => SlotState::Delta(DeltaState::new(op.clone())),
        })
    }
}

impl SlotState {
    pub fn bytes(&self) -> usize {
        recurrent!(self, SlotState::Cache(cache) => cache.bytes(), state => state.bytes())
    }

    pub fn planes(&self) -> Vec<Vec<f32>> {
        recurrent!(self, SlotState::Cache(_) => vec![], state => state.planes())
    }

    pub fn set_planes(&mut self, planes: &[Vec<f32>]) -> crate::Result<()> {
        recurrent!(self, SlotState::Cache(_) => Ok(()), state => state.set_planes(planes))
    }

    /// Forgets the last `n` tokens; a cache is truncated instead.
    pub fn rewind(&mut self, n: usize) -> crate::Result<()> {
        recurrent!(self, SlotState::Cache(_) => Ok(()), state => state.rewind(n))
    }
}

impl CpuExecutor {
    pub(super) fn recurrent(&mut self, op: &Op, batch: &Batch<'_>, states: &mut [&mut Slots]) -> Result<()> {
        let (Some(slot), Some(&out)) = (op.slot(), op.outputs().first()) else { return Ok(()) };
        self.write(out, None, batch, |e, values| e.each(op, slot, out, batch, states, values).map_err(op_error(op)))
    }

    fn each(
        &self,
        op: &Op,
        slot: SlotId,
        out: BufferId,
        batch: &Batch<'_>,
        states: &mut [&mut Slots],
        values: &mut [f32],
    ) -> crate::Result<()> {
        let inputs = op.inputs();
        for (sequence, own) in batch.sequences.iter().zip(states) {
            let rows = |width: usize| sequence.rows.start * width..sequence.rows.end * width;
            let part = |id: BufferId| &self.read(id, batch)[rows(self.plan.buffer(id).width)];
            let values = &mut values[rows(self.plan.buffer(out).width)];
            let inputs: Vec<&[f32]> = inputs.iter().map(|&id| part(id)).collect();
            match &mut own.slots[slot.0 as usize] {
                SlotState::Conv(state) => state.forward(&self.pool, inputs[0], values)?,
                SlotState::Scan(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Ssd(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Mamba3(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Cssd(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Delta(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Cache(_) => return Err(Error::Parameter("a recurrent op's slot is a cache")),
            }
        }
        Ok(())
    }
}
