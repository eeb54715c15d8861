//! The CPU executor's state: attention caches, allocated once.

use std::any::Any;

use selkie_model::{Error, Result, StateData, plan::Slot};

use crate::{CacheType, KvCache};

/// One sequence's caches, one a slot of the plan.
pub(super) struct Caches {
    pub slots: Vec<KvCache>,
    capacity: usize,
}

impl Caches {
    pub fn new(slots: &[Slot], capacity: usize, exact: bool) -> crate::Result<Self> {
        let dtype = if exact { CacheType::F32 } else { CacheType::F16 };
        let cache = |slot: &Slot| match *slot {
            Slot::KvCache { n_kv_heads, head_dim, .. } => KvCache::new(dtype, n_kv_heads, head_dim, head_dim, capacity),
        };
        Ok(Self { slots: slots.iter().map(cache).collect::<crate::Result<_>>()?, capacity })
    }

    pub fn check_room(&self, wanted: usize) -> Result<()> {
        if wanted > self.capacity { Err(Error::Context { wanted, capacity: self.capacity }) } else { Ok(()) }
    }

    pub fn truncate(&mut self, positions: usize) {
        self.slots.iter_mut().for_each(|slot| slot.truncate(positions));
    }
}

impl StateData for Caches {
    fn fork(&self) -> Box<dyn StateData> {
        Box::new(Caches { slots: self.slots.clone(), capacity: self.capacity })
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(KvCache::bytes).sum()
    }

    fn executor(&self) -> &'static str {
        super::NAME
    }

    fn rewind(&mut self, positions: usize) -> Result<()> {
        self.truncate(positions);
        Ok(())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
