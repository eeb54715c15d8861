//! A sequence's state on the device.
//!
//! The arrays of every slot are buffers. Forks share them until one of them goes on. Recurrent states also keep two older
//! copies, at least [`MAX_REWIND`] positions apart, and the ids since the older: to go back is to take up a copy and to read
//! those ids again, which happens with the next pass.

use std::{any::Any, cell::RefCell, ops::Range, rc::Rc, sync::Arc};

use selkie_formats::{DType, LocalFuture, Tensor};
use selkie_model::{Error, MAX_REWIND, Result, StateData, plan::Slot};

use crate::{Buffer, Limits, engine::Engine};

/// The arrays of all slots, with a bind group for each slot.
pub(crate) struct Planes {
    /// For each slot its arrays; of a cache that is cut all arrays of each cut, in order.
    pub buffers: Vec<Vec<Arc<Buffer>>>,
    /// For each slot group 1 of its kernels, one for each cut.
    pub groups: Vec<Vec<wgpu::BindGroup>>,
}

/// A copy of the recurrent slots' arrays; none is all zeros.
pub(crate) struct Mark {
    /// Positions held then.
    pub positions: usize,
    /// For each recurrent slot its arrays, in order.
    pub buffers: Option<Vec<Arc<Buffer>>>,
}

/// What is to be done before the next pass: a copy is taken up, and ids are read again.
pub(crate) struct Replay {
    /// The copy.
    pub mark: Rc<Mark>,
    /// The ids after it.
    pub ids: Vec<u32>,
}

/// A state's changing parts.
pub(crate) struct Inner {
    /// The arrays, shared with forks until one goes on.
    pub planes: Rc<Planes>,
    /// Copies, oldest first; empty where no slot is recurrent.
    pub marks: Vec<Rc<Mark>>,
    /// Room for copies to come, so that nothing is made on the way.
    pub spare: Vec<Rc<Mark>>,
    /// Ids since the oldest copy.
    pub ids: Vec<u32>,
    /// What was put off.
    pub replay: Option<Replay>,
    /// Positions held, once what was put off is done.
    pub positions: usize,
}

/// One sequence's state.
pub(crate) struct Slots {
    pub(crate) engine: Rc<Engine>,
    pub(crate) capacity: usize,
    pub(crate) inner: RefCell<Inner>,
}

impl Inner {
    fn fork(&self) -> Self {
        Self {
            planes: self.planes.clone(),
            marks: self.marks.clone(),
            spare: vec![],
            ids: self.ids.clone(),
            replay: self.replay.as_ref().map(|r| Replay { mark: r.mark.clone(), ids: r.ids.clone() }),
            positions: self.positions,
        }
    }

    /// Forgets what comes after `positions`, a number that a copy reaches or that needs none.
    pub(crate) fn go_back(&mut self, positions: usize) {
        if positions != self.positions && !self.marks.is_empty() {
            // The oldest copy reaches it: callers have checked that.
            while self.marks.len() > 1 && self.marks.last().is_some_and(|mark| mark.positions > positions) {
                self.spare.extend(self.marks.pop());
            }
            let oldest = self.marks[0].positions;
            self.ids.truncate(positions - oldest);
            if let Some(mark) = self.marks.last() {
                let ids = self.ids[mark.positions - oldest..].to_vec();
                self.replay = Some(Replay { mark: mark.clone(), ids });
            }
        }
        self.positions = positions;
    }

    /// Takes back what a pass that failed may have done to recurrent states: the next one reads again.
    pub(crate) fn undo(&mut self, positions: usize) {
        if self.replay.is_none() {
            self.positions = usize::MAX;
            self.go_back(positions);
        }
    }
}

impl Slots {
    pub(crate) fn check_room(&self, wanted: usize) -> Result<()> {
        if wanted > self.capacity { Err(Error::Context { wanted, capacity: self.capacity }) } else { Ok(()) }
    }
}

impl StateData for Slots {
    fn fork(&self) -> Box<dyn StateData> {
        let inner = RefCell::new(self.inner.borrow().fork());
        Box::new(Slots { engine: self.engine.clone(), capacity: self.capacity, inner })
    }

    fn bytes(&self) -> usize {
        let inner = self.inner.borrow();
        let marks = inner.marks.iter().chain(&inner.spare).flat_map(|mark| mark.buffers.iter().flatten());
        inner.planes.buffers.iter().flatten().chain(marks).map(|buffer| buffer.bytes() as usize).sum()
    }

    fn executor(&self) -> &'static str {
        super::engine::NAME
    }

    fn rewind(&mut self, positions: usize) -> Result<()> {
        let inner = self.inner.get_mut();
        let wanted = inner.positions - positions;
        if let Some(oldest) = inner.marks.first().filter(|oldest| oldest.positions > positions) {
            return Err(Error::Rewind { wanted, remembered: inner.positions - oldest.positions });
        }
        inner.go_back(positions);
        Ok(())
    }

    fn planes(&self) -> LocalFuture<'_, Result<Vec<Tensor>>> {
        Box::pin(async move {
            self.engine.settle(self).await?;
            let (planes, positions) = {
                let inner = self.inner.borrow();
                (inner.planes.clone(), inner.positions)
            };
            self.engine.download(&planes, positions).await
        })
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// How the arrays of a slot lie on the device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlaneShape {
    /// For each position, where there is one row a position.
    pub by_position: bool,
    /// Parts of a row, or of the array: heads.
    pub parts: usize,
    /// Values of a part.
    pub width: usize,
    /// The same on the device.
    pub padded: usize,
    /// Whether values are halves.
    pub half: bool,
}

impl PlaneShape {
    /// The arrays of `slot`: heads of a cache are padded to quads, all else lies as it is saved.
    pub fn of(slot: &Slot, exact: bool) -> Vec<Self> {
        let cache = matches!(slot, Slot::KvCache { .. });
        let one = |(_, shape): (&str, Vec<usize>)| {
            let width = if cache { shape[2] } else { shape.iter().product() };
            let parts = if cache { shape[1] } else { 1 };
            let padded = width.next_multiple_of(4);
            Self { by_position: cache, parts, width, padded, half: cache && !exact }
        };
        slot.planes(1).into_iter().map(one).collect()
    }

    /// Bytes of one position, or of the array.
    pub fn row_bytes(&self) -> usize {
        self.parts * self.padded * if self.half { 2 } else { 4 }
    }

    /// Bytes for that many positions.
    pub fn bytes(&self, positions: usize) -> u64 {
        (self.row_bytes() * if self.by_position { positions } else { 1 }) as u64
    }

    /// How many of the array a state holds in the end: older ones too of what is recurrent.
    pub fn copies(&self) -> u64 {
        if self.by_position { 1 } else { 1 + MARKS as u64 }
    }

    /// From the device's bytes to a tensor of that shape.
    pub fn tensor(&self, device: &[u8], shape: Vec<usize>) -> Tensor {
        let size = if self.half { 2 } else { 4 };
        let parts = device.chunks_exact((self.padded * size).max(1));
        let values: usize = shape.iter().product();
        let bytes: Vec<u8> =
            parts.take(values / self.width.max(1)).flat_map(|part| part[..self.width * size].iter().copied()).collect();
        let dtype = if self.half { DType::F16 } else { DType::F32 };
        Tensor { dtype, shape, bytes: bytes.into() }
    }

    /// The other way.
    ///
    /// # Errors
    /// Where the tensor holds no numbers.
    pub fn device(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let values = tensor.to_f32().map_err(|e| Error::Snapshot(e.to_string()))?;
        let mut bytes = vec![];
        for part in values.chunks_exact(self.width.max(1)) {
            let padding = std::iter::repeat_n(&0.0, self.padded - self.width);
            for &value in part.iter().chain(padding) {
                if self.half {
                    bytes.extend_from_slice(&half::f16::from_f32(value).to_le_bytes());
                } else {
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok(bytes)
    }
}

/// A cut of a cache has a multiple of the largest of these numbers of positions that fits.
pub(crate) const UNITS: [usize; 3] = [1024, 256, 64];

/// Positions of a cut of a slot's arrays: a cache that is larger than what kernels may see of a buffer lies in several. None where
/// the least of [`UNITS`] is too many.
pub(crate) fn cut_positions(slot: &Slot, exact: bool, limits: &Limits) -> Option<usize> {
    if !matches!(slot, Slot::KvCache { .. }) {
        return Some(usize::MAX);
    }
    let row_bytes = PlaneShape::of(slot, exact).iter().map(PlaneShape::row_bytes).max().unwrap_or(0).max(1);
    let most = (limits.binding.min(limits.buffer) / row_bytes as u64) as usize;
    UNITS.into_iter().find(|&unit| unit <= most).map(|unit| most / unit * unit)
}

/// The buffers of a slot's array number `plane`, of `planes`, each with which of its first `bytes` bytes it has.
pub(crate) fn pieces(
    buffers: &[Arc<Buffer>],
    (plane, planes): (usize, usize),
    bytes: u64,
) -> impl Iterator<Item = (&Arc<Buffer>, Range<u64>)> {
    buffers.iter().skip(plane).step_by(planes.max(1)).scan(0, move |start, buffer| {
        let range = *start..(*start + buffer.bytes()).min(bytes);
        *start = range.end;
        (!range.is_empty()).then_some((buffer, range))
    })
}

/// Positions between two copies of a recurrent state.
pub(crate) const MARK_EVERY: usize = MAX_REWIND;

/// Copies that are kept.
pub(crate) const MARKS: usize = 2;
