//! The reference executor's state: caches that grow, and recurrent states with what they were a few tokens ago.

use std::{any::Any, collections::VecDeque, ops::Range};

use selkie_formats::{LocalFuture, Tensor};

use super::Real;
use crate::{Error, Result, Snapshot, StateData, executor::MAX_REWIND, plan::Slot, weights::f32_tensor};

/// One sequence's state, one entry a slot of the plan.
#[derive(Clone)]
pub(super) struct Caches<T> {
    pub slots: Vec<Entry<T>>,
    layout: Vec<Slot>,
    positions: usize,
    capacity: usize,
}

/// What one slot holds.
#[derive(Clone)]
pub(super) enum Entry<T> {
    Cache(Cache<T>),
    Recurrent(Recurrent<T>),
}

/// Keys `[positions, n_kv_heads · head_dim]` and values `[positions, n_kv_heads · v_head_dim]` of one attention layer.
#[derive(Clone)]
pub(super) struct Cache<T> {
    pub k: Vec<T>,
    pub v: Vec<T>,
    widths: [usize; 2],
}

/// The arrays of one recurrent op, now and before each of the last tokens.
#[derive(Clone)]
pub(super) struct Recurrent<T> {
    planes: Vec<Vec<T>>,
    /// The arrays before the last token stand last.
    before: VecDeque<Vec<Vec<T>>>,
}

impl<T: Real> Recurrent<T> {
    /// Runs `step`, which takes some rows and the arrays, over `rows`: in one piece, but token by token for the last,
    /// since each of those may be the one that a rewind goes back to.
    pub fn advance(
        &mut self,
        rows: Range<usize>,
        mut step: impl FnMut(Range<usize>, &mut [Vec<T>]) -> Vec<T>,
    ) -> Vec<T> {
        let first = rows.end.saturating_sub(MAX_REWIND).max(rows.start);
        let mut out = vec![];
        if rows.start < first {
            self.before.clear();
            out = step(rows.start..first, &mut self.planes);
        }
        for row in first..rows.end {
            if self.before.len() == MAX_REWIND {
                self.before.pop_front();
            }
            self.before.push_back(self.planes.clone());
            out.extend(step(row..row + 1, &mut self.planes));
        }
        out
    }

    fn rewind(&mut self, tokens: usize) {
        if let Some(at) = self.before.len().checked_sub(tokens).filter(|_| tokens > 0) {
            self.planes = self.before[at].clone();
            self.before.truncate(at);
        }
    }
}

impl<T: Real> Caches<T> {
    pub fn new(slots: &[Slot], capacity: usize) -> Self {
        let zeros =
            |slot: &Slot| slot.planes(0).into_iter().map(|(_, shape)| vec![T::default(); shape.iter().product()]);
        let entry = |slot: &Slot| match *slot {
            Slot::KvCache { n_kv_heads, head_dim, v_head_dim, .. } => {
                let widths = [n_kv_heads * head_dim, n_kv_heads * v_head_dim];
                Entry::Cache(Cache { k: vec![], v: vec![], widths })
            }
            _ => Entry::Recurrent(Recurrent { planes: zeros(slot).collect(), before: VecDeque::new() }),
        };
        Self { slots: slots.iter().map(entry).collect(), layout: slots.to_vec(), positions: 0, capacity }
    }

    /// The state of a snapshot, which fits the slots.
    pub fn restore(slots: &[Slot], snapshot: &Snapshot, capacity: usize) -> Result<Self> {
        snapshot.check(slots)?;
        let mut own = Self::new(slots, capacity);
        own.check_room(snapshot.positions)?;
        own.positions = snapshot.positions;
        let mut planes = snapshot.planes.iter().map(|plane| -> Result<Vec<T>> {
            let values = plane.to_f32().map_err(|e| Error::Snapshot(e.to_string()))?;
            Ok(values.into_iter().map(T::from_f32).collect())
        });
        let mut next = || planes.next().unwrap_or_else(|| Ok(vec![]));
        for entry in &mut own.slots {
            match entry {
                Entry::Cache(cache) => (cache.k, cache.v) = (next()?, next()?),
                Entry::Recurrent(own) => own.planes.iter_mut().try_for_each(|plane| next().map(|p| *plane = p))?,
            }
        }
        Ok(own)
    }

    pub fn check_room(&self, wanted: usize) -> Result<()> {
        if wanted > self.capacity { Err(Error::Context { wanted, capacity: self.capacity }) } else { Ok(()) }
    }

    pub fn advance(&mut self, rows: usize) {
        self.positions += rows;
    }

    /// A copy of every array.
    fn copies(&self) -> Vec<Tensor> {
        let mut planes = vec![];
        for (entry, slot) in self.slots.iter().zip(&self.layout) {
            let values: Vec<&Vec<T>> = match entry {
                Entry::Cache(cache) => vec![&cache.k, &cache.v],
                Entry::Recurrent(recurrent) => recurrent.planes.iter().collect(),
            };
            for (values, (_, shape)) in values.into_iter().zip(slot.planes(self.positions)) {
                planes.push(f32_tensor(values.iter().map(|v| v.to_f64() as f32).collect(), shape));
            }
        }
        planes
    }
}

impl<T: Real> StateData for Caches<T> {
    fn fork(&self) -> Box<dyn StateData> {
        Box::new(self.clone())
    }

    fn bytes(&self) -> usize {
        let values = |entry: &Entry<T>| match entry {
            Entry::Cache(cache) => cache.k.len() + cache.v.len(),
            Entry::Recurrent(r) => r.before.iter().chain([&r.planes]).flatten().map(Vec::len).sum(),
        };
        self.slots.iter().map(values).sum::<usize>() * size_of::<T>()
    }

    fn executor(&self) -> &'static str {
        super::NAME
    }

    fn rewind(&mut self, positions: usize) -> Result<()> {
        let wanted = self.positions - positions;
        let remembered = self.slots.iter().filter_map(|entry| match entry {
            Entry::Cache(_) => None,
            Entry::Recurrent(r) => Some(r.before.len()),
        });
        if let Some(remembered) = remembered.min().filter(|&n| n < wanted) {
            return Err(Error::Rewind { wanted, remembered });
        }
        for entry in &mut self.slots {
            match entry {
                Entry::Cache(cache) => {
                    cache.k.truncate(positions * cache.widths[0]);
                    cache.v.truncate(positions * cache.widths[1]);
                }
                Entry::Recurrent(recurrent) => recurrent.rewind(wanted),
            }
        }
        self.positions = positions;
        Ok(())
    }

    fn planes(&self) -> LocalFuture<'_, Result<Vec<Tensor>>> {
        Box::pin(async { Ok(self.copies()) })
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
