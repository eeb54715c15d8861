//! The CPU executor's state: attention caches, allocated once.

use std::any::Any;

use selkie_model::{
    Error, Result, StateData,
    plan::{AttentionOp, Slot},
};

use crate::Pool;

pub(super) struct Caches {
    pub slots: Vec<Cache>,
    capacity: usize,
}

#[derive(Clone)]
pub(super) struct Cache {
    k: Vec<f32>,
    v: Vec<f32>,
    width: usize,
}

impl Caches {
    pub fn new(slots: &[Slot], capacity: usize, _exact: bool) -> Self {
        let slots = slots
            .iter()
            .map(|Slot::KvCache { n_kv_heads, head_dim, .. }| Cache {
                k: Vec::with_capacity(n_kv_heads * head_dim * capacity),
                v: Vec::with_capacity(n_kv_heads * head_dim * capacity),
                width: n_kv_heads * head_dim,
            })
            .collect();
        Self { slots, capacity }
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

impl StateData for Caches {
    fn fork(&self) -> Box<dyn StateData> {
        Box::new(Caches { slots: self.slots.clone(), capacity: self.capacity })
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(|s| (s.k.capacity() + s.v.capacity()) * 4).sum()
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

pub(super) fn attention(
    _pool: &Pool,
    a: &AttentionOp,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    cache: &mut Cache,
    out: &mut [f32],
) -> Result<()> {
    let past = cache.k.len() / cache.width;
    cache.k.extend_from_slice(k);
    cache.v.extend_from_slice(v);
    let shape = selkie_model::reference::ops::AttentionShape::of(a);
    out.copy_from_slice(&selkie_model::reference::ops::attention(q, &cache.k, &cache.v, past, &shape));
    Ok(())
}
