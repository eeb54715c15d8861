//! The CPU executor's state: attention caches, allocated once, and recurrent states.

use std::any::Any;

use selkie_formats::{DType, LocalFuture, Tensor};
use selkie_model::{Error, MAX_REWIND, Result, Snapshot, StateData, plan::Slot, weights::f32_tensor};

use super::{
    op_failed,
    recurrent::{SlotOp, SlotState},
};
use crate::{CacheType, Isa};

/// One sequence's state, one entry a slot of the plan.
#[derive(Clone)]
pub(super) struct Slots {
    pub slots: Vec<SlotState>,
    layout: Vec<Slot>,
    isa: Isa,
    positions: usize,
    capacity: usize,
    /// Tokens that the recurrent states can forget.
    reach: usize,
    /// A pass failed half-way, and recurrent states cannot go back to where they were.
    lost: bool,
}

impl Slots {
    pub fn new(layout: &[Slot], ops: &[SlotOp], isa: Isa, capacity: usize, exact: bool) -> crate::Result<Self> {
        let dtype = if exact { CacheType::F32 } else { CacheType::F16 };
        let mut slots = Vec::with_capacity(ops.len());
        for op in ops {
            slots.push(op.state(dtype, capacity)?);
        }
        Ok(Self { slots, layout: layout.to_vec(), isa, positions: 0, capacity, reach: 0, lost: false })
    }

    /// Takes up a snapshot.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        snapshot.check(&self.layout)?;
        self.check_room(snapshot.positions)?;
        let mut planes = snapshot.planes.iter();
        for (slot, layout) in self.slots.iter_mut().zip(&self.layout) {
            let mut values = |n: usize| -> Result<Vec<Vec<f32>>> {
                let floats = |p: &Tensor| p.to_f32().map_err(|e| Error::Snapshot(e.to_string()));
                planes.by_ref().take(n).map(floats).collect()
            };
            match slot {
                SlotState::Cache(cache) => {
                    let planes = values(2)?;
                    cache.append(self.isa, &planes[0], &planes[1]).map_err(|e| op_failed("state", &e))?;
                }
                recurrent => {
                    let planes = values(layout.planes(0).len())?;
                    recurrent.set_planes(&planes).map_err(|e| op_failed("state", &e))?;
                }
            }
        }
        self.positions = snapshot.positions;
        Ok(())
    }

    pub fn check_room(&self, wanted: usize) -> Result<()> {
        if self.lost {
            return Err(Error::LostState);
        }
        if wanted > self.capacity { Err(Error::Context { wanted, capacity: self.capacity }) } else { Ok(()) }
    }

    pub fn advance(&mut self, rows: usize) {
        self.positions += rows;
        self.reach = (self.reach + rows).min(MAX_REWIND);
    }

    fn any_recurrent(&self) -> bool {
        self.slots.iter().any(|slot| !matches!(slot, SlotState::Cache(_)))
    }

    /// Undoes what a failed pass has done to some of the slots. Its recurrent states may have taken in tokens or not.
    pub fn roll_back(&mut self) {
        for slot in &mut self.slots {
            if let SlotState::Cache(cache) = slot {
                cache.truncate(self.positions);
            }
        }
        self.lost = self.any_recurrent();
    }

    /// A copy of every array.
    fn copies(&self) -> Result<Vec<Tensor>> {
        if self.lost {
            return Err(Error::LostState);
        }
        let mut planes = vec![];
        for (slot, layout) in self.slots.iter().zip(&self.layout) {
            let values = match slot {
                SlotState::Cache(cache) => {
                    let (k, v) = cache.rows(self.isa, 0..self.positions).map_err(|e| op_failed("state", &e))?;
                    vec![k, v]
                }
                recurrent => recurrent.planes(),
            };
            let halves = matches!(slot, SlotState::Cache(cache) if cache.dtype() == CacheType::F16);
            for (values, (_, shape)) in values.into_iter().zip(layout.planes(self.positions)) {
                planes.push(if halves { f16_tensor(&values, shape) } else { f32_tensor(values, shape) });
            }
        }
        Ok(planes)
    }
}

impl StateData for Slots {
    fn fork(&self) -> Box<dyn StateData> {
        Box::new(self.clone())
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(SlotState::bytes).sum()
    }

    fn executor(&self) -> &'static str {
        super::NAME
    }

    fn rewind(&mut self, positions: usize) -> Result<()> {
        if self.lost {
            return Err(Error::LostState);
        }
        let wanted = self.positions - positions;
        if self.any_recurrent() && wanted > self.reach {
            return Err(Error::Rewind { wanted, remembered: self.reach });
        }
        for slot in &mut self.slots {
            match slot {
                SlotState::Cache(cache) => cache.truncate(positions),
                recurrent => recurrent.rewind(wanted).map_err(|e| op_failed("rewind", &e))?,
            }
        }
        self.positions = positions;
        self.reach = self.reach.saturating_sub(wanted);
        Ok(())
    }

    fn planes(&self) -> LocalFuture<'_, Result<Vec<Tensor>>> {
        Box::pin(async { self.copies() })
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Values that came from half floats, as such again.
fn f16_tensor(values: &[f32], shape: Vec<usize>) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
    Tensor { dtype: DType::F16, shape, bytes: bytes.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::CausalConv;

    /// After a pass that failed, caches are as before; recurrent states refuse whatever would rest on them.
    #[test]
    fn a_failed_pass_loses_recurrent_states_only() {
        let conv = Arc::new(CausalConv::new(1, 2, &[1.0, 1.0], None, false).expect("a convolution"));
        let (window, cached) = (
            (Slot::Conv { channels: 1, taps: 2 }, SlotOp::Conv(conv)),
            (
                Slot::KvCache { n_kv_heads: 1, head_dim: 1, v_head_dim: 1, window: None },
                SlotOp::Cache { n_kv_heads: 1, head_dim: 1, v_head_dim: 1 },
            ),
        );
        for ((layout, op), lost) in [(window, true), (cached, false)] {
            let mut slots = Slots::new(&[layout], &[op], Isa::best(), 4, true).expect("a state");
            slots.advance(2);
            slots.roll_back();
            let refused = |result: Result<()>| matches!(result, Err(Error::LostState));
            assert_eq!(refused(slots.check_room(3)), lost);
            assert_eq!(refused(pollster::block_on(slots.planes()).map(|_| ())), lost);
            assert_eq!(refused(slots.rewind(1)), lost);
        }
    }
}
