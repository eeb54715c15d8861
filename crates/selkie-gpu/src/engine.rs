//! One model on one device: programs, tables and buffers, made at load and used for every pass.

mod generate;
mod load;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use selkie_formats::Tensor;
use selkie_model::{
    Batch, Error, LoadedWeights, ModelSpec, OpTime, Output, Plan, Result, Snapshot, Want, Watch, plan::Slot,
};
use web_time::Instant;

use crate::{
    Buffer, Gpu,
    compile::{Regime, View},
    gpu::Use,
    kernels::sample::Sampler,
    memory::Memory,
    state::{Inner, MARK_EVERY, MARKS, Mark, PlaneShape, Planes, Slots, cut_positions, pieces},
    table::{Run, STEP_STRIDE, Sizes, Step, Table, Timers},
    weights::Resident,
};

use load::step_entry;

pub(crate) const NAME: &str = "gpu";

/// How a [`GpuExecutor`](crate::GpuExecutor) runs.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// f32 throughout, where the default rounds activations to 8 bits for quantised weights, and caches to f16.
    pub exact: bool,
    /// Rows of a block at most.
    pub block_rows: usize,
    /// Output rows of a block at most.
    pub block_outputs: usize,
    /// Positions of a sequence at most.
    pub max_positions: usize,
    /// Positions that a first state is expected to have room for: a model is not loaded where that would not fit.
    pub context: usize,
    /// Who watches the load.
    pub watch: Watch,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            exact: false,
            block_rows: 512,
            block_outputs: 32,
            max_positions: 131_072,
            context: 0,
            watch: Watch::default(),
        }
    }
}

/// Sequences of a batch that go in one block at most.
const MAX_SEQUENCES: usize = 64;
/// How long a submit should take at most: watchdogs, and people who wait for a stop.
const LONGEST: Duration = Duration::from_millis(100);

/// One model on one device.
pub struct Engine {
    pub(crate) gpu: Gpu,
    pub(crate) spec: ModelSpec,
    pub(crate) plan: Plan,
    /// What angles are computed from.
    rope_weights: LoadedWeights,
    exact: bool,
    max_positions: usize,
    memory: Memory,
    token: Ready,
    block: Ready,
    /// Steps, ids, output rows and angles of a pass.
    inputs: Inputs,
    /// Group 1 of kernels without a state.
    step_group: wgpu::BindGroup,
    readback: Arc<Buffer>,
    sampler: Sampler,
    /// How long a token takes that the device chooses, as far as is known.
    token_time: Cell<Option<Duration>>,
    resident: Resident,
    _places: Vec<Arc<Buffer>>,
    shapes: Vec<Vec<PlaneShape>>,
    /// Rows of the next block, as the last ones' time suggests.
    block_rows: Cell<usize>,
    most_rows: usize,
    most_outputs: usize,
    words: RefCell<Vec<u32>>,
    /// Whether times are measured, and where they are kept.
    measuring: Cell<bool>,
    profile: RefCell<Option<Rc<Times>>>,
}

/// The times of dispatches.
struct Times {
    resolved: Arc<Buffer>,
    readback: Arc<Buffer>,
    by_kernel: RefCell<Vec<OpTime>>,
}

/// A program made ready.
struct Ready {
    table: Table,
    until_hidden: usize,
    hidden: (Arc<Buffer>, View),
    logits: (Arc<Buffer>, View),
}

/// The layout of the buffer that each pass is told its news in.
struct Inputs {
    buffer: Arc<Buffer>,
    ids: u64,
    outputs: u64,
    /// For each rope: where its angles start, and pairs in a row.
    angles: Vec<(u64, usize)>,
    bytes: u64,
}

impl Engine {
    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What it needs there.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// In how many buffers each matrix lies.
    pub fn chunks(&self) -> Vec<usize> {
        self.resident.matrices.iter().map(Vec::len).collect()
    }

    /// The table of a regime.
    pub fn table(&self, regime: Regime) -> &Table {
        match regime {
            Regime::Token => &self.token.table,
            Regime::Block => &self.block.table,
        }
    }

    pub(crate) async fn new_state(self: &Rc<Self>, capacity: usize) -> Result<Slots> {
        if capacity > self.max_positions {
            return Err(Error::Context { wanted: capacity, capacity: self.max_positions });
        }
        let planes = self.new_planes(capacity).await.map_err(|error| match error {
            crate::Error::OutOfMemory { device, .. } => {
                let bytes = self.shapes.iter().flatten().map(|shape| shape.bytes(capacity)).sum();
                let (what, hint) = (format!("a state for {capacity} positions"), "a shorter context needs less".into());
                crate::Error::OutOfMemory { what, bytes, device, hint }
            }
            error => error,
        })?;
        let planes = Rc::new(planes);
        let recurrent = self.plan.slots.iter().any(|slot| !matches!(slot, Slot::KvCache { .. }));
        let marks = if recurrent { vec![Rc::new(Mark { positions: 0, buffers: None })] } else { vec![] };
        let mut spare = vec![];
        while recurrent && spare.len() < MARKS {
            let buffers = Some(self.mark_buffers(&planes).await?);
            spare.push(Rc::new(Mark { positions: 0, buffers }));
        }
        let inner = RefCell::new(Inner { planes, marks, spare, ids: vec![], replay: None, positions: 0 });
        Ok(Slots { engine: self.clone(), capacity, inner })
    }

    pub(crate) async fn restore(self: &Rc<Self>, snapshot: &Snapshot, capacity: usize) -> Result<Slots> {
        snapshot.check(&self.plan.slots)?;
        let state = self.new_state(capacity).await?;
        state.check_room(snapshot.positions)?;
        let planes = state.inner.borrow().planes.clone();
        let mut saved = snapshot.planes.iter();
        for (buffers, shapes) in planes.buffers.iter().zip(&self.shapes) {
            for ((at, shape), plane) in shapes.iter().enumerate().zip(&mut saved) {
                let bytes = shape.device(plane)?;
                for (buffer, range) in pieces(buffers, (at, shapes.len()), bytes.len() as u64) {
                    let piece = &bytes[range.start as usize..range.end as usize];
                    self.gpu.queue().write_buffer(buffer.raw(), 0, piece);
                }
            }
        }
        self.gpu.queue().submit([]);
        {
            let mut inner = state.inner.borrow_mut();
            inner.positions = snapshot.positions;
            inner.marks.clear();
        }
        if self.has_recurrent() {
            let spare = state.inner.borrow_mut().spare.pop();
            let mark = self.mark(&planes, snapshot.positions, spare).await?;
            state.inner.borrow_mut().marks = vec![Rc::new(mark)];
        }
        Ok(state)
    }

    fn has_recurrent(&self) -> bool {
        self.plan.slots.iter().any(|slot| !matches!(slot, Slot::KvCache { .. }))
    }

    async fn new_planes(&self, capacity: usize) -> crate::Result<Planes> {
        let mut buffers = vec![];
        for (slot, shapes) in self.shapes.iter().enumerate() {
            let mut own = vec![];
            let limits = self.gpu.limits();
            let cut = cut_positions(&self.plan.slots[slot], self.exact, &limits).unwrap_or(usize::MAX);
            let cuts = (0..capacity.max(1)).step_by(cut).map(|first| cut.min(capacity.max(1) - first));
            for (positions, shape) in cuts.flat_map(|positions| shapes.iter().map(move |shape| (positions, shape))) {
                let bytes = shape.bytes(positions);
                let limit = limits.binding;
                if bytes > limit {
                    return Err(crate::Error::Limit {
                        what: format!("the state of slot {slot}"),
                        wanted: bytes,
                        limit,
                        device: self.gpu.name().into(),
                        hint: "a shorter context needs less".into(),
                    });
                }
                own.push(self.gpu.buffer("state", bytes, Use::Storage).await?);
            }
            buffers.push(own);
        }
        let mut groups = vec![];
        for (buffers, shapes) in buffers.iter().zip(&self.shapes) {
            let mut of_slot = vec![];
            for own in buffers.chunks(shapes.len().max(1)) {
                let mut entries = vec![step_entry(&self.inputs.buffer)];
                entries.extend(own.iter().enumerate().map(|(i, buffer)| wgpu::BindGroupEntry {
                    binding: 1 + i as u32,
                    resource: buffer.raw().as_entire_binding(),
                }));
                let layout = self.gpu.step_layout(own.len());
                let descriptor = wgpu::BindGroupDescriptor { label: Some("state"), layout: &layout, entries: &entries };
                of_slot.push(self.gpu.scoped("state", || self.gpu.device().create_bind_group(&descriptor)).await?);
            }
            groups.push(of_slot);
        }
        Ok(Planes { buffers, groups })
    }

    /// The recurrent slots' arrays, in order.
    fn recurrent<'a>(&'a self, planes: &'a Planes) -> impl Iterator<Item = &'a Arc<Buffer>> {
        let slots = self.plan.slots.iter().zip(&planes.buffers);
        slots.filter(|(slot, _)| !matches!(slot, Slot::KvCache { .. })).flat_map(|(_, buffers)| buffers)
    }

    /// Room for a copy of the recurrent slots.
    async fn mark_buffers(&self, planes: &Planes) -> crate::Result<Vec<Arc<Buffer>>> {
        let mut made = vec![];
        for buffer in self.recurrent(planes) {
            made.push(self.gpu.buffer("older state", buffer.bytes(), Use::Storage).await?);
        }
        Ok(made)
    }

    /// A copy of the recurrent slots, into the buffers of a copy that nobody needs any more where there is one.
    async fn mark(&self, planes: &Planes, positions: usize, old: Option<Rc<Mark>>) -> crate::Result<Mark> {
        let old = old.and_then(|old| Rc::try_unwrap(old).ok()).and_then(|old| old.buffers);
        let buffers = match old {
            Some(buffers) => buffers,
            None => self.mark_buffers(planes).await?,
        };
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (from, to) in self.recurrent(planes).zip(&buffers) {
            encoder.copy_buffer_to_buffer(from.raw(), 0, to.raw(), 0, from.bytes());
        }
        self.gpu.queue().submit([encoder.finish()]);
        Ok(Mark { positions, buffers: Some(buffers) })
    }

    /// Arrays that no fork shares.
    async fn own_planes(&self, state: &Slots) -> crate::Result<Rc<Planes>> {
        let shared = state.inner.borrow().planes.clone();
        // One owner is the state, one is `shared`.
        if Rc::strong_count(&shared) <= 2 {
            return Ok(shared);
        }
        let own = Rc::new(self.new_planes(state.capacity).await?);
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (from, to) in shared.buffers.iter().flatten().zip(own.buffers.iter().flatten()) {
            encoder.copy_buffer_to_buffer(from.raw(), 0, to.raw(), 0, from.bytes());
        }
        self.gpu.queue().submit([encoder.finish()]);
        state.inner.borrow_mut().planes = own.clone();
        Ok(own)
    }

    /// Does what a rewind put off.
    pub(crate) async fn settle(&self, state: &Slots) -> Result<()> {
        let Some(replay) = state.inner.borrow_mut().replay.take() else { return Ok(()) };
        let planes = self.own_planes(state).await?;
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        match &replay.mark.buffers {
            Some(buffers) => {
                for (from, to) in buffers.iter().zip(self.recurrent(&planes)) {
                    encoder.copy_buffer_to_buffer(from.raw(), 0, to.raw(), 0, from.bytes());
                }
            }
            None => self.recurrent(&planes).for_each(|buffer| encoder.clear_buffer(buffer.raw(), 0, None)),
        }
        self.gpu.queue().submit([encoder.finish()]);
        let mut past = replay.mark.positions;
        for ids in replay.ids.chunks(self.most_rows) {
            let piece = Piece { first: 0, own: ids.len(), past, input: 0 };
            let ran = self.pass(ids, &[piece], std::slice::from_ref(&planes), &[], Want::Hidden).await;
            if let Err(error) = ran {
                state.inner.borrow_mut().replay = Some(replay);
                return Err(error);
            }
            past += ids.len();
        }
        Ok(())
    }

    /// Runs a batch in blocks.
    pub(crate) async fn run(&self, batch: &Batch<'_>, states: &[&Slots]) -> Result<Output> {
        let before: Vec<usize> = states.iter().map(|state| state.inner.borrow().positions).collect();
        let ran = self.blocks(batch, states).await;
        if ran.is_err() {
            states.iter().zip(&before).for_each(|(state, &positions)| state.inner.borrow_mut().undo(positions));
        }
        ran
    }

    async fn blocks(&self, batch: &Batch<'_>, states: &[&Slots]) -> Result<Output> {
        let mut planes = Vec::with_capacity(states.len());
        for state in states {
            self.settle(state).await?;
            planes.push(self.own_planes(state).await?);
        }
        let width = self.plan.buffer(match batch.want {
            Want::Logits => self.plan.logits,
            Want::Hidden => self.plan.hidden,
        });
        let width = width.width;
        let mut values = Vec::with_capacity(batch.outputs.len() * width);
        let mut row = 0;
        let mut fed = vec![0; states.len()];
        while row < batch.ids.len() {
            let mut end = (row + self.block_rows.get()).min(batch.ids.len());
            // No more outputs and sequences than there is room for.
            let outputs = batch.outputs.partition_point(|&o| o < row);
            if let Some(&over) = batch.outputs.get(outputs + self.most_outputs) {
                end = end.min(over);
            }
            let mut pieces = vec![];
            let mut own = vec![];
            for (s, sequence) in batch.sequences.iter().enumerate() {
                let rows = sequence.rows.start.max(row)..sequence.rows.end.min(end);
                if rows.is_empty() {
                    continue;
                }
                if pieces.len() == MAX_SEQUENCES {
                    end = rows.start;
                    break;
                }
                let past = states[s].inner.borrow().positions + fed[s];
                pieces.push(Piece { first: rows.start - row, own: rows.len(), past, input: 0 });
                own.push(planes[s].clone());
                fed[s] += rows.len();
            }
            let outputs: Vec<u32> =
                batch.outputs[outputs..].iter().take_while(|&&o| o < end).map(|&o| (o - row) as u32).collect();
            let started = Instant::now();
            values.extend(self.pass(&batch.ids[row..end], &pieces, &own, &outputs, batch.want).await?);
            if end < batch.ids.len() {
                self.gpu.wait().await?;
                self.follow(started.elapsed(), end - row);
            }
            row = end;
        }
        for ((state, sequence), planes) in states.iter().zip(batch.sequences).zip(&planes) {
            self.advance(state, &batch.ids[sequence.rows.clone()], planes).await?;
        }
        Ok(Output { width, values })
    }

    /// Takes note of rows that went into a state, and a copy of it where it is time.
    pub(crate) async fn advance(&self, state: &Slots, ids: &[u32], planes: &Planes) -> Result<()> {
        let old = {
            let mut inner = state.inner.borrow_mut();
            inner.positions += ids.len();
            if inner.marks.is_empty() {
                return Ok(());
            }
            inner.ids.extend_from_slice(ids);
            let due = inner.marks.last().is_some_and(|mark| inner.positions >= mark.positions + MARK_EVERY);
            if !due {
                return Ok(());
            }
            if inner.marks.len() > 1 {
                let old = inner.marks.remove(0);
                let forget = inner.marks[0].positions - old.positions;
                inner.ids.drain(..forget);
                Some(old)
            } else {
                None
            }
        };
        let (positions, room) = {
            let mut inner = state.inner.borrow_mut();
            // The first copy of all, of nothing, has no buffers.
            let old = old.filter(|mark| mark.buffers.is_some());
            (inner.positions, old.or_else(|| inner.spare.pop()))
        };
        let mark = self.mark(planes, positions, room).await?;
        state.inner.borrow_mut().marks.push(Rc::new(mark));
        Ok(())
    }

    /// Sizes the next block so that it takes no longer than a submit should.
    fn follow(&self, took: Duration, rows: usize) {
        let fits = rows as f64 * LONGEST.as_secs_f64() / took.as_secs_f64().max(1e-6);
        let next = (fits as usize).max(16).min(self.most_rows);
        // Growing is careful: a small block says little of a large one.
        self.block_rows.set(next.min(2 * self.block_rows.get()).max(16).min(self.most_rows));
    }

    /// One submit.
    async fn pass(
        &self,
        ids: &[u32],
        pieces: &[Piece],
        planes: &[Rc<Planes>],
        outputs: &[u32],
        want: Want,
    ) -> Result<Vec<f32>> {
        let ready = if ids.len() == 1 { &self.token } else { &self.block };
        self.write_inputs(ids, pieces, outputs)?;
        let sizes: Vec<Sizes> = pieces
            .iter()
            .map(|piece| Sizes {
                rows: ids.len() as u32,
                outputs: outputs.len() as u32,
                own: piece.own as u32,
                past: piece.past as u32,
            })
            .collect();
        let end = if want == Want::Hidden { ready.until_hidden } else { ready.table.rows().len() };
        let states: Vec<&[Vec<wgpu::BindGroup>]> = planes.iter().map(|planes| planes.groups.as_slice()).collect();
        let gpu = &self.gpu;
        let mut timers = self.timers().await?;
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            let run = Run {
                rows: 0..end,
                limit: gpu.limits().workgroups,
                sequences: &sizes,
                first_step: 0,
                step: &self.step_group,
                states: &states,
            };
            ready.table.encode(&mut pass, &run, timers.as_mut().map(|t| &mut t.0));
        }
        let (buffer, view) = if want == Want::Hidden { &ready.hidden } else { &ready.logits };
        let bytes = 4 * (outputs.len() * view.stride) as u64;
        if bytes > 0 {
            encoder.copy_buffer_to_buffer(buffer.raw(), 0, self.readback.raw(), 0, bytes);
        }
        if let Some((timers, times)) = &timers {
            timers.resolve(&mut encoder, &times.resolved, &times.readback);
        }
        gpu.queue().submit([encoder.finish()]);
        gpu.check()?;
        if let Some((timers, times)) = &timers {
            self.note(timers, times).await?;
        }
        if bytes == 0 {
            return Ok(vec![]);
        }
        let (stride, offset, width) = (view.stride, view.offset, view.width);
        let rows = gpu
            .read(&self.readback, 0..bytes, |bytes| {
                let values: &[f32] = bytemuck::cast_slice(bytes);
                values.chunks_exact(stride).flat_map(|row| row[offset..offset + width].iter().copied()).collect()
            })
            .await?;
        Ok(rows)
    }

    /// What the pass is told: one write.
    fn write_inputs(&self, ids: &[u32], pieces: &[Piece], outputs: &[u32]) -> Result<()> {
        let mut words = self.words.borrow_mut();
        words.clear();
        words.resize(self.inputs.bytes as usize / 4, 0);
        for (s, piece) in pieces.iter().enumerate() {
            let step = Step {
                rows: ids.len() as u32,
                outputs: outputs.len() as u32,
                first: piece.first as u32,
                own: piece.own as u32,
                past: piece.past as u32,
                input: piece.input as u32,
                ..Step::default()
            };
            let at = s * STEP_STRIDE as usize / 4;
            words[at..at + size_of::<Step>() / 4].copy_from_slice(bytemuck::cast_slice(bytemuck::bytes_of(&step)));
        }
        words[self.inputs.ids as usize / 4..][..ids.len()].copy_from_slice(ids);
        words[self.inputs.outputs as usize / 4..][..outputs.len()].copy_from_slice(outputs);
        let mut end = self.inputs.outputs as usize / 4 + self.most_outputs;
        for (rope, &(start, pairs)) in self.spec.ropes.iter().zip(&self.inputs.angles) {
            let mut at = start as usize / 4;
            for piece in pieces {
                let frequencies = rope.frequencies(piece.past + piece.own, &self.rope_weights)?;
                for i in 0..piece.own {
                    for (cos, sin) in frequencies.cos_sin(piece.past + i) {
                        words[at] = cos.to_bits();
                        words[at + 1] = sin.to_bits();
                        at += 2;
                    }
                }
            }
            debug_assert_eq!(at, start as usize / 4 + 2 * pairs * pieces.iter().map(|piece| piece.own).sum::<usize>());
            end = at;
        }
        self.gpu.queue().write_buffer(self.inputs.buffer.raw(), 0, bytemuck::cast_slice(&words[..end]));
        Ok(())
    }

    /// The arrays of a state.
    pub(crate) async fn download(&self, planes: &Planes, positions: usize) -> Result<Vec<Tensor>> {
        let mut tensors = vec![];
        for ((buffers, shapes), slot) in planes.buffers.iter().zip(&self.shapes).zip(&self.plan.slots) {
            for ((plane, shape), (_, dims)) in shapes.iter().enumerate().zip(slot.planes(positions)) {
                let bytes = shape.bytes(positions);
                let mut host = Vec::with_capacity(bytes as usize);
                for (buffer, range) in pieces(buffers, (plane, shapes.len()), bytes) {
                    let mut at = range.start;
                    while at < range.end {
                        let n = (range.end - at).min(self.readback.bytes());
                        let mut encoder =
                            self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                        encoder.copy_buffer_to_buffer(buffer.raw(), at - range.start, self.readback.raw(), 0, n);
                        self.gpu.queue().submit([encoder.finish()]);
                        self.gpu.read(&self.readback, 0..n, |bytes| host.extend_from_slice(bytes)).await?;
                        at += n;
                    }
                }
                tensors.push(shape.tensor(&host, dims));
            }
        }
        Ok(tensors)
    }

    /// Switches the measuring of times on, from nothing, or off; where the device has no clock nothing is measured.
    pub(crate) fn measure(&self, on: bool) {
        self.measuring.set(on && self.gpu.has_timestamps());
        *self.profile.borrow_mut() = None;
    }

    /// Timers for a submit, where times are measured.
    async fn timers(&self) -> crate::Result<Option<(Timers, Rc<Times>)>> {
        if !self.measuring.get() {
            return Ok(None);
        }
        let known = self.profile.borrow().clone();
        let times = match known {
            Some(times) => times,
            None => {
                let resolved = self.gpu.buffer("times", Timers::BYTES, Use::Times).await?;
                let readback = self.gpu.buffer("times", Timers::BYTES, Use::Readback).await?;
                Rc::new(Times { resolved, readback, by_kernel: RefCell::default() })
            }
        };
        *self.profile.borrow_mut() = Some(times.clone());
        Ok(Some((Timers::new(&self.gpu), times)))
    }

    /// Adds what a submit took.
    async fn note(&self, timers: &Timers, times: &Times) -> crate::Result<()> {
        let taken = timers.read(&self.gpu, &times.readback).await?;
        let mut kept = times.by_kernel.borrow_mut();
        for (op, time) in taken {
            match kept.iter_mut().find(|kept| kept.op == op) {
                Some(kept) => {
                    kept.runs += 1;
                    kept.time += time;
                }
                None => kept.push(OpTime { op, runs: 1, time }),
            }
        }
        Ok(())
    }

    /// The times since measuring began or was last asked for.
    pub(crate) fn take_times(&self) -> Vec<OpTime> {
        self.profile.borrow().as_ref().map_or(vec![], |times| times.by_kernel.take())
    }

    /// Whether it is exact.
    pub fn is_exact(&self) -> bool {
        self.exact
    }
}

/// The rows of a block that belong to one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Its first row.
    pub first: usize,
    /// Its rows.
    pub own: usize,
    /// Positions that it held before.
    pub past: usize,
    /// The row of ids and angles that belongs to row 0 of its pass.
    pub input: usize,
}
