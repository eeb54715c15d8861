//! The reference executor's state: caches that grow.

use std::any::Any;

use super::Real;
use crate::{Error, Result, StateData};

/// One sequence's caches, one a slot of the plan.
pub(super) struct Caches<T> {
    pub slots: Vec<Cache<T>>,
    capacity: usize,
}

/// Keys and values of one attention layer, `[positions, n_kv_heads · head_dim]` each.
#[derive(Clone)]
pub(super) struct Cache<T> {
    pub k: Vec<T>,
    pub v: Vec<T>,
    width: usize,
}

impl<T: Real> Caches<T> {
    pub fn new(widths: impl Iterator<Item = usize>, capacity: usize) -> Self {
        Self { slots: widths.map(|width| Cache { k: vec![], v: vec![], width }).collect(), capacity }
    }

    pub fn check_room(&self, wanted: usize) -> Result<()> {
        if wanted > self.capacity { Err(Error::Context { wanted, capacity: self.capacity }) } else { Ok(()) }
    }

    pub fn truncate(&mut self, positions: usize) {
        for slot in &mut self.slots {
            slot.k.truncate(positions * slot.width);
            slot.v.truncate(positions * slot.width);
        }
    }
}

impl<T: Real> StateData for Caches<T> {
    fn fork(&self) -> Box<dyn StateData> {
        Box::new(Caches { slots: self.slots.clone(), capacity: self.capacity })
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(|s| (s.k.len() + s.v.len()) * size_of::<T>()).sum()
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
