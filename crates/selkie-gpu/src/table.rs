//! A pass as a table of dispatches.
//!
//! Each [`Row`] says which kernel runs over which buffers, with which constants and how many workgroups. All of it is
//! fixed when the table is made, but for the sizes of a batch, which [`Count`]s name and the [`Step`] brings.

use std::{ops::Range, sync::Arc, time::Duration};

use selkie_model::plan::SlotId;

use crate::{
    Access, Buffer, Error, Gpu, Pipeline, Result, Shader,
    gpu::Use,
    weights::{MatrixId, VectorId},
};

/// A buffer that a kernel sees, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ref {
    /// A place of values, `[rows, stride]`.
    Place(usize),
    /// Room that a kernel, or kernels in a row, use among themselves.
    Scratch(usize),
    /// A chunk of a matrix.
    Matrix(MatrixId, usize),
    /// Small weights in f32.
    Vector(VectorId),
    /// The grids of the IQ formats.
    Grids,
    /// The batch's token ids.
    Ids,
    /// The rows whose output is wanted.
    Outputs,
    /// Cosines and sines of a rotary embedding, a row of pairs for each row of the batch.
    Angles(usize),
}

/// A buffer that a kernel sees, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Which.
    pub of: Ref,
    /// How.
    pub access: Access,
}

impl Bind {
    /// Read only.
    pub fn read(of: Ref) -> Self {
        Self { of, access: Access::Read }
    }

    /// To read and write.
    pub fn write(of: Ref) -> Self {
        Self { of, access: Access::Write }
    }
}

/// A range of a buffer.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The buffer.
    pub buffer: Arc<Buffer>,
    /// Its bytes.
    pub range: Range<u64>,
}

impl Bound {
    /// All of a buffer.
    pub fn all(buffer: &Arc<Buffer>) -> Self {
        Self { range: 0..buffer.bytes(), buffer: buffer.clone() }
    }

    fn resource(&self) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: self.buffer.raw(),
            offset: self.range.start,
            size: wgpu::BufferSize::new(self.range.end - self.range.start),
        })
    }
}

/// A size of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Always one.
    One,
    /// Rows of the batch.
    Rows,
    /// Rows whose output is wanted.
    Outputs,
    /// Rows of the sequence at hand.
    Own,
    /// Positions that the sequence at hand holds with its rows.
    Length,
}

/// A number of workgroups: `times · ceil(of / per)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// So many for each.
    pub times: u32,
    /// What is counted.
    pub of: Of,
    /// So many of which make one.
    pub per: u32,
}

impl Count {
    /// Always `n`.
    pub fn fixed(n: usize) -> Self {
        Self { times: n as u32, of: Of::One, per: 1 }
    }

    /// `times · ceil(of / per)`.
    pub fn new(times: usize, of: Of, per: usize) -> Self {
        Self { times: times as u32, of, per: per as u32 }
    }

    fn get(&self, sizes: &Sizes) -> u32 {
        self.times * sizes.get(self.of).div_ceil(self.per)
    }
}

/// The workgroups of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// A line, folded where it is longer than a dimension may be: kernels number themselves with `group_index`.
    Line(Count),
    /// Three dimensions, each within the limit.
    Block([Count; 3]),
}

/// Whether a row runs once a batch or once a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// Once.
    Batch,
    /// Once a sequence, with its step and its state.
    Sequence,
}

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The kernel in plain words.
    pub kernel: &'static str,
    /// The layer that it belongs to.
    pub layer: Option<usize>,
    /// The shader.
    pub shader: Shader,
    /// The words of `Params`, binding 0.
    pub params: Vec<u32>,
    /// Bindings from 1 on.
    pub bindings: Vec<Bind>,
    /// The slot of the state that it sees, its arrays from binding 1 of group 1 on.
    pub slot: Option<SlotId>,
    /// Which cut of that, where it is cut.
    pub cut: usize,
    /// Two more at most, in groups 2 and 3.
    pub more_slots: Vec<SlotId>,
    /// How often it runs.
    pub each: Each,
    /// How many workgroups.
    pub grid: Grid,
    /// Runs only where this size is at least so much.
    pub from: Option<(Of, u32)>,
    /// Runs only where this size is below so much.
    pub until: Option<(Of, u32)>,
}

/// The sizes of one sequence in a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Rows of the batch.
    pub rows: u32,
    /// Rows whose output is wanted.
    pub outputs: u32,
    /// Rows of this sequence.
    pub own: u32,
    /// Positions that it held before.
    pub past: u32,
}

impl Sizes {
    fn get(&self, of: Of) -> u32 {
        match of {
            Of::One => 1,
            Of::Rows => self.rows,
            Of::Outputs => self.outputs,
            Of::Own => self.own,
            Of::Length => self.past + self.own,
        }
    }
}

/// What every kernel is told of a batch; `Step` in `kernels/common.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Step {
    /// Rows of the batch.
    pub rows: u32,
    /// Rows whose output is wanted.
    pub outputs: u32,
    /// The sequence's first row.
    pub first: u32,
    /// Its rows.
    pub own: u32,
    /// Positions that it held before.
    pub past: u32,
    /// Not 0 once the sequence has ended: states stay as they are.
    pub done: u32,
    /// The row of ids and angles that belongs to row 0 of the batch.
    pub input: u32,
    /// To fill 16 bytes.
    pub unused: u32,
}

/// Bytes from one step to the next: what any device takes as an offset.
pub const STEP_STRIDE: u64 = 256;

/// A row made ready.
struct Ready {
    row: Row,
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
}

/// A table made ready: pipelines, constants and bind groups.
pub struct Table {
    rows: Vec<Ready>,
    /// Holds every row's constants.
    _params: Arc<Buffer>,
}

impl Table {
    /// Makes the rows ready.
    ///
    /// # Errors
    /// Where a kernel cannot be made, by its name.
    pub async fn new(
        gpu: &Gpu,
        rows: Vec<Row>,
        planes: &dyn Fn(SlotId) -> usize,
        resolve: &dyn Fn(Ref) -> Bound,
    ) -> Result<Self> {
        Self::watched(gpu, rows, planes, resolve, &|| Ok(())).await
    }

    /// As [`new`](Self::new); `made_one` is called after each row, and may end it.
    ///
    /// # Errors
    /// As there, and those of `made_one`.
    pub async fn watched(
        gpu: &Gpu,
        rows: Vec<Row>,
        planes: &dyn Fn(SlotId) -> usize,
        resolve: &dyn Fn(Ref) -> Bound,
        made_one: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let offsets: Vec<u64> = rows
            .iter()
            .scan(0, |end, row| {
                let start = *end;
                *end += (4 * row.params.len() as u64).max(16).next_multiple_of(STEP_STRIDE);
                Some(start)
            })
            .collect();
        let size = offsets.last().map_or(0, |last| last + STEP_STRIDE);
        let params = gpu.buffer("parameters", size, Use::Uniform).await?;
        let mut ready = Vec::with_capacity(rows.len());
        let mut words = vec![0u32; size as usize / 4];
        for (row, &offset) in rows.into_iter().zip(&offsets) {
            let more = row.more_slots.iter().map(|&slot| planes(slot));
            let arrays: Vec<usize> = std::iter::once(row.slot.map_or(0, planes)).chain(more).collect();
            let buffers = row.bindings.len() + arrays.iter().sum::<usize>();
            if buffers > gpu.limits().storage_buffers as usize {
                let what = format!("{buffers} storage buffers are too many");
                return Err(Error::Kernel { kernel: row.kernel.into(), what });
            }
            words[offset as usize / 4..][..row.params.len()].copy_from_slice(&row.params);
            let access: Vec<Access> = row.bindings.iter().map(|bound| bound.access).collect();
            let pipeline = gpu.pipeline(&row.shader, &access, &arrays).await?;
            let block = wgpu::BufferBinding {
                buffer: params.raw(),
                offset,
                size: wgpu::BufferSize::new((4 * row.params.len() as u64).next_multiple_of(16).max(16)),
            };
            let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(block) }];
            let bound: Vec<Bound> = row.bindings.iter().map(|bind| resolve(bind.of)).collect();
            let resources = bound.iter().map(Bound::resource).enumerate();
            entries.extend(resources.map(|(i, resource)| wgpu::BindGroupEntry { binding: 1 + i as u32, resource }));
            let name = format!("{} of layer {:?}", row.shader, row.layer);
            let descriptor =
                wgpu::BindGroupDescriptor { label: Some(&name), layout: &pipeline.layout, entries: &entries };
            let group = gpu.scoped(&name, || gpu.device().create_bind_group(&descriptor)).await?;
            ready.push(Ready { row, pipeline, group });
            made_one()?;
        }
        gpu.queue().write_buffer(params.raw(), 0, bytemuck::cast_slice(&words));
        Ok(Self { rows: ready, _params: params })
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.rows.iter().map(|ready| &ready.row)
    }

    /// Writes a run of rows into a pass.
    ///
    /// Rows that run once a sequence and follow each other run for one sequence after the other, so that what they leave in
    /// scratch buffers is the sequence's own.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, run: &Run<'_>, mut timers: Option<&mut Timers>) {
        // What group 1 is set to: a cut of a slot's or none's, and whose step.
        let mut told = None;
        let each = |a: &Ready| a.row.each == Each::Sequence;
        for rows in self.rows[run.rows.clone()].chunk_by(|a, b| each(a) && each(b)) {
            let runs = if each(&rows[0]) { run.sequences.len() } else { 1 };
            for ((s, sizes), ready) in
                run.sequences[..runs].iter().enumerate().flat_map(|s| rows.iter().map(move |r| (s, r)))
            {
                let row = &ready.row;
                let few = row.from.is_some_and(|(of, least)| sizes.get(of) < least);
                let many = row.until.is_some_and(|(of, end)| sizes.get(of) >= end);
                if few || many {
                    continue;
                }
                let [x, y, z] = match row.grid {
                    Grid::Line(count) => {
                        let n = count.get(sizes);
                        if n <= run.limit { [n, 1, 1] } else { [run.limit, n.div_ceil(run.limit), 1] }
                    }
                    Grid::Block(counts) => counts.map(|count| count.get(sizes)),
                };
                if x * y * z == 0 || (row.each == Each::Sequence && sizes.own == 0) {
                    continue;
                }
                pass.set_pipeline(&ready.pipeline.raw);
                pass.set_bind_group(0, &ready.group, &[]);
                let state = |slot: SlotId, cut: usize| &run.states[s][slot.0 as usize][cut];
                if told.replace((row.slot, row.cut, s)) != Some((row.slot, row.cut, s)) {
                    let group = row.slot.map_or(run.step, |slot| state(slot, row.cut));
                    pass.set_bind_group(1, group, &[(run.first_step + s) as u32 * STEP_STRIDE as u32]);
                }
                for (&slot, group) in row.more_slots.iter().zip(2..) {
                    let offset = (run.first_step + s) as u32 * STEP_STRIDE as u32;
                    pass.set_bind_group(group, state(slot, 0), &[offset]);
                }
                if let Some(timers) = &mut timers {
                    timers.start(pass, row.kernel);
                }
                pass.dispatch_workgroups(x, y, z);
                if let Some(timers) = &mut timers {
                    timers.stop(pass);
                }
            }
        }
    }
}

/// What a table is run over.
pub struct Run<'a> {
    /// Which of its rows.
    pub rows: Range<usize>,
    /// Workgroups in one dimension at most.
    pub limit: u32,
    /// The sizes of each sequence; the first one's are the batch's.
    pub sequences: &'a [Sizes],
    /// Where their steps are: this one and those behind it.
    pub first_step: usize,
    /// Group 1 of kernels without a state.
    pub step: &'a wgpu::BindGroup,
    /// Group 1 of kernels with a state: for each sequence and slot one a cut.
    pub states: &'a [&'a [Vec<wgpu::BindGroup>]],
}

/// Queries of a set at most, by WebGPU's rules.
const MOST_QUERIES: u32 = 4096;

/// When each dispatch of a submit began and ended, by the device's own clock.
pub struct Timers {
    set: wgpu::QuerySet,
    kernels: Vec<&'static str>,
}

impl Timers {
    /// None yet.
    pub fn new(gpu: &Gpu) -> Self {
        let descriptor =
            wgpu::QuerySetDescriptor { label: Some("timers"), ty: wgpu::QueryType::Timestamp, count: MOST_QUERIES };
        Self { set: gpu.device().create_query_set(&descriptor), kernels: vec![] }
    }

    fn has_room(&self) -> bool {
        2 * (self.kernels.len() as u32) + 2 <= MOST_QUERIES
    }

    fn start(&mut self, pass: &mut wgpu::ComputePass<'_>, kernel: &'static str) {
        if self.has_room() {
            pass.write_timestamp(&self.set, 2 * self.kernels.len() as u32);
        }
        self.kernels.push(kernel);
    }

    fn stop(&mut self, pass: &mut wgpu::ComputePass<'_>) {
        let at = 2 * self.kernels.len() as u32 - 1;
        if at < MOST_QUERIES {
            pass.write_timestamp(&self.set, at);
        }
    }

    /// Has the device write the times into a buffer that `read` takes them from.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, resolved: &Buffer, readback: &Buffer) {
        let n = (2 * self.kernels.len() as u32).min(MOST_QUERIES);
        encoder.resolve_query_set(&self.set, 0..n, resolved.raw(), 0);
        encoder.copy_buffer_to_buffer(resolved.raw(), 0, readback.raw(), 0, 8 * u64::from(n));
    }

    /// Bytes of all times.
    pub const BYTES: u64 = 8 * MOST_QUERIES as u64;

    /// Each dispatch's kernel and time, from what was read.
    ///
    /// # Errors
    /// Where the device cannot be read.
    pub async fn read(&self, gpu: &Gpu, readback: &Buffer) -> Result<Vec<(&'static str, Duration)>> {
        let n = self.kernels.len().min(MOST_QUERIES as usize / 2);
        let period = f64::from(gpu.queue().get_timestamp_period());
        gpu.read(readback, 0..16 * n as u64, |bytes| {
            let ticks: &[u64] = bytemuck::cast_slice(bytes);
            let time = |pair: &[u64]| Duration::from_nanos((pair[1].saturating_sub(pair[0]) as f64 * period) as u64);
            self.kernels.iter().copied().zip(ticks.chunks_exact(2).map(time)).collect()
        })
        .await
    }
}
