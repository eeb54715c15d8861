//! The ops with a state: each sequence's rows go through the op with that sequence's slot.

use std::sync::Arc;

use selkie_model::{
    Batch, Result,
    plan::{BufferId, Op, Plan, Slot, SlotId},
    reference::ops,
    spec,
};

use super::{CpuExecutor, Slots, op_error, weights::Loaded};
use crate::{
    CacheType, CausalConv, ConvState, Error, InputRule, KvCache, Pool, ScanState, SelectiveScan, Ssd, SsdShape,
    SsdState,
    kernels::recurrent::state::{Recurrence, RecurrentState},
};

/// The op that a slot belongs to, with its weights as its kernel wants them.
pub(super) enum SlotOp {
    Cache { n_kv_heads: usize, head_dim: usize, v_head_dim: usize },
    Conv(Arc<CausalConv>),
    Scan(Arc<SelectiveScan>),
    Ssd(Arc<Ssd>),
    Plain(Arc<Plain>),
}

/// What a slot holds.
#[derive(Clone)]
pub(super) enum SlotState {
    Cache(KvCache),
    Conv(ConvState),
    Scan(ScanState),
    Ssd(SsdState),
    Plain(RecurrentState<Plain>),
}

/// `$body` with what a recurrent slot holds; `$cache` for a cache.
macro_rules! recurrent {
    ($slot:expr, $cache:pat => $other:expr, $state:ident => $body:expr) => {
        match $slot {
            $cache => $other,
            SlotState::Conv($state) => $body,
            SlotState::Scan($state) => $body,
            SlotState::Ssd($state) => $body,
            SlotState::Plain($state) => $body,
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
                    let rule = match o.input {
                        spec::InputRule::Euler => InputRule::Euler,
                        spec::InputRule::ZeroOrderHold => InputRule::ZeroOrderHold,
                    };
                    SlotOp::Scan(Arc::new(SelectiveScan::new(channels, d_state, rule, vector(o.a), vector(o.d))?))
                }
                (Op::Ssd(o), _) => {
                    let spec::SsdShape { n_heads, head_dim, n_groups, d_state, dt_min, dt_max, scale_input } = o.shape;
                    let dt_limit = (dt_min, dt_max);
                    let shape = SsdShape { n_heads, head_dim, n_groups, d_state, scale_input, dt_limit };
                    SlotOp::Ssd(Arc::new(Ssd::new(shape, vector(o.a), vector(o.d), Some(vector(o.dt_bias)))?))
                }
                _ => SlotOp::Plain(Arc::new(Plain::new(op, layout, plan, weights)?)),
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
            SlotOp::Plain(op) => SlotState::Plain(RecurrentState::new(op.clone())),
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
                SlotState::Plain(state) => state.advance(&self.pool, &inputs, values)?,
                SlotState::Cache(_) => return Err(Error::Parameter("a recurrent op's slot is a cache")),
            }
        }
        Ok(())
    }
}

type Step = dyn Fn(&[&[f32]], &mut [Vec<f32>]) -> Vec<f32> + Send + Sync;

/// An op by its definition, for what has no kernel of its own.
pub(super) struct Plain {
    widths: Vec<usize>,
    outputs: usize,
    planes: Vec<usize>,
    step: Box<Step>,
}

impl Plain {
    fn new(op: &Op, slot: &Slot, plan: &Plan, weights: &Loaded) -> crate::Result<Self> {
        let own = |id| weights.vector(id).to_vec();
        let step: Box<Step> = match op {
            Op::CausalConv { x, weight, bias, silu, .. } => {
                let (channels, weight, bias, silu) = (plan.buffer(*x).width, own(*weight), bias.map(own), *silu);
                let taps = weight.len() / channels;
                Box::new(move |i, p| ops::causal_conv(i[0], &weight, bias.as_deref(), silu, &mut p[0], channels, taps))
            }
            Op::SelectiveScan(o) => {
                let (a, d, input) = (own(o.a), own(o.d), o.input);
                Box::new(move |i, p| ops::selective_scan(i[0], i[1], i[2], i[3], &a, &d, input, &mut p[0]))
            }
            Op::Ssd(o) => {
                let (a, d, dt_bias, shape) = (own(o.a), own(o.d), own(o.dt_bias), o.shape);
                Box::new(move |i, p| ops::ssd(i[0], i[1], &a, &d, Some(&dt_bias), &shape, &mut p[0]))
            }
            Op::Mamba3(o) => {
                let (dt_bias, b_bias, c_bias, d) = (own(o.dt_bias), own(o.b_bias), own(o.c_bias), own(o.d));
                let (mimo_x, shape) = (o.mimo_x.map(own), o.shape);
                Box::new(move |i, p| {
                    let mimo_x = mimo_x.as_deref();
                    let params =
                        ops::Mamba3Params { dt_bias: &dt_bias, b_bias: &b_bias, c_bias: &c_bias, d: &d, mimo_x };
                    let [angle, s, k, x] = p else { return vec![] };
                    let state = ops::Mamba3State { angle, s, k, x };
                    ops::mamba3(i[0], i[1], i[2], i[3], i[4], i[5], i[6], &params, &shape, state)
                })
            }
            Op::Cssd(o) => {
                let (a_log, d, dt_bias, shape) = (own(o.a_log), own(o.d), own(o.dt_bias), o.shape);
                Box::new(move |i, p| ops::cssd(i[0], i[1], &a_log, &d, &dt_bias, &shape, &mut p[0]))
            }
            Op::DeltaRule(o) => {
                let (a_weight, dt_bias, shape) = (own(o.a_weight), own(o.dt_bias), o.shape);
                Box::new(move |i, p| ops::delta_rule(i[0], i[1], i[2], &a_weight, &dt_bias, &shape, &mut p[0]))
            }
            _ => return Err(Error::Parameter("an op without a state")),
        };
        Ok(Self {
            widths: op.inputs().iter().map(|&id| plan.buffer(id).width).collect(),
            outputs: op.outputs().iter().map(|&id| plan.buffer(id).width).sum(),
            planes: slot.planes(0).into_iter().map(|(_, shape)| shape.iter().product()).collect(),
            step,
        })
    }
}

impl Recurrence for Plain {
    fn widths(&self) -> &[usize] {
        &self.widths
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn planes(&self) -> Vec<usize> {
        self.planes.clone()
    }

    fn fresh(&self) -> Vec<Vec<f32>> {
        self.planes.iter().map(|&n| vec![0.0; n]).collect()
    }

    fn advance(&self, _: &Pool, planes: &mut [Vec<f32>], _: usize, inputs: &[&[f32]], out: &mut [f32]) {
        out.copy_from_slice(&(self.step)(inputs, planes));
    }

    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        planes.to_vec()
    }

    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        planes.to_vec()
    }
}
