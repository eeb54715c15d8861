//! What a device does at best: the bytes that it reads a second, and what a dispatch and a submit cost.

use web_time::{Duration, Instant};

use crate::{
    Buffer, Defines, Error, Gpu, Result,
    compile::row,
    gpu::Use,
    kernels::Binds,
    table::{Bound, Count, Grid, Ref, Row, Run, STEP_STRIDE, Sizes, Table},
};

/// What a device does at best, outside of everything that this crate could do wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes a second that a kernel reads of a buffer larger than the caches.
    pub read: f64,
    /// A small dispatch that waits for the one before it.
    pub dispatch: Duration,
    /// From a submit of one small dispatch to its result on the host.
    pub round_trip: Duration,
}

/// Bytes that are read: more than the caches of large cards hold; software reads slowly, and has small caches.
const READ: u64 = 1 << 30;
const READ_IN_SOFTWARE: u64 = 64 << 20;
/// Least that is worth measuring.
const LEAST: u64 = 1 << 20;
/// Quads that a thread reads.
const EACH: usize = 16;
/// Reads of a series at most, and about how long it may take.
const MOST_READS: u128 = 16;
const LONGEST: Duration = Duration::from_millis(50);
/// Work before anything is measured.
const WARM: Duration = Duration::from_millis(100);
/// Dispatches of a series.
const DISPATCHES: u32 = 200;
/// Of each time the best of so many counts.
const ROUNDS: u32 = 3;

/// Places of the two buffers.
const DATA: Ref = Ref::Scratch(0);
const OUT: Ref = Ref::Scratch(1);

impl Gpu {
    /// Measures the device, in a fraction of a second. The memory that it takes is free again afterwards.
    ///
    /// # Errors
    /// Where a kernel cannot be made, the device fails, or it counts wrongly.
    pub async fn measure(&self) -> Result<Measured> {
        let data = self.data().await?;
        let out = self.buffer("counters", 256, Use::Storage).await?;
        let step = self.buffer("step", STEP_STRIDE, Use::Inputs).await?;
        let back = self.buffer("readback", 256, Use::Readback).await?;
        let quads = data.bytes() / 16;
        let rows = vec![fill(quads), read(quads), count()];
        let resolve = |of: Ref| Bound::all(if of == DATA { &data } else { &out });
        let table = Table::new(self, rows, &|_| 0, &resolve).await?;
        let layout = self.step_layout(0);
        let group = self.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("step"),
            layout: &layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: step.raw().as_entire_binding() }],
        });
        let bench = Bench { gpu: self, table, group, out: &out, back: &back };
        bench.run(FILL, 1).await?;

        // A device that has just waited for a load runs slowly at first.
        let started = Instant::now();
        while started.elapsed() < WARM {
            bench.run(READS, 4).await?;
        }
        let once = bench.best(READS, 1).await?;
        let reads = (LONGEST.as_nanos() / once.as_nanos().max(1)).clamp(1, MOST_READS) as u32;
        let more = bench.best(READS, 1 + reads).await?;
        let seconds = more.saturating_sub(once).as_secs_f64().max(1e-9) / f64::from(reads);
        let few = bench.best(COUNT, 1).await?;
        let many = bench.best(COUNT, 1 + DISPATCHES).await?;
        let dispatch = many.saturating_sub(few) / DISPATCHES;
        let counted = bench.counter().await?;
        let wanted = ROUNDS * (2 + DISPATCHES);
        if counted != wanted {
            let what = format!("counted {counted} of {wanted} dispatches");
            return Err(Error::Kernel { kernel: "count".into(), what });
        }
        Ok(Measured { read: data.bytes() as f64 / seconds, dispatch, round_trip: few })
    }

    /// The largest buffer that there is room for, up to what is to be read.
    async fn data(&self) -> Result<std::sync::Arc<Buffer>> {
        let most = if self.is_software() { READ_IN_SOFTWARE } else { READ };
        let mut bytes = most.min(self.limits().binding).min(self.limits().buffer) / 16 * 16;
        loop {
            match self.buffer("data", bytes, Use::Storage).await {
                Err(Error::OutOfMemory { .. }) if bytes / 2 >= LEAST => bytes = bytes / 32 * 16,
                made => return made,
            }
        }
    }
}

/// Rows of the table.
const FILL: usize = 0;
const READS: usize = 1;
const COUNT: usize = 2;

fn over_data(kernel: &'static str, quads: u64, filled: bool) -> Row {
    let mut binds = Binds::new(Defines::new().set("EACH", format!("{EACH}u")).flag("FILL", filled));
    if filled {
        binds.write("DATA", DATA);
    } else {
        binds.read("DATA", DATA);
        binds.write("OUT", OUT);
    }
    let grid = Grid::Line(Count::fixed((quads as usize).div_ceil(256 * EACH)));
    let file = "kernels/measure/read.wgsl";
    Row { params: vec![quads as u32, 0], bindings: binds.list, grid, ..row(kernel, file, binds.defines) }
}

fn fill(quads: u64) -> Row {
    over_data("fill", quads, true)
}

fn read(quads: u64) -> Row {
    over_data("read", quads, false)
}

fn count() -> Row {
    let mut binds = Binds::new(Defines::new());
    binds.write("OUT", OUT);
    let file = "kernels/measure/count.wgsl";
    Row { params: vec![1], bindings: binds.list, ..row("count", file, binds.defines) }
}

struct Bench<'a> {
    gpu: &'a Gpu,
    table: Table,
    /// Group 1 of all rows.
    group: wgpu::BindGroup,
    out: &'a Buffer,
    back: &'a Buffer,
}

impl Bench<'_> {
    /// The shortest time of a few runs.
    async fn best(&self, row: usize, times: u32) -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(self.run(row, times).await?);
        }
        Ok(best)
    }

    /// How long it takes from the submit of `times` dispatches of a row until their result is here.
    async fn run(&self, row: usize, times: u32) -> Result<Duration> {
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            let limit = self.gpu.limits().workgroups;
            for _ in 0..times {
                let sequences = [Sizes::default()];
                let rows = row..row + 1;
                let run = Run { rows, limit, sequences: &sequences, first_step: 0, step: &self.group, states: &[] };
                self.table.encode(&mut pass, &run, None);
            }
        }
        encoder.copy_buffer_to_buffer(self.out.raw(), 0, self.back.raw(), 0, self.back.bytes());
        let commands = encoder.finish();
        let started = Instant::now();
        self.gpu.queue().submit([commands]);
        self.counter().await?;
        Ok(started.elapsed())
    }

    /// The counter as the last submit left it.
    async fn counter(&self) -> Result<u32> {
        self.gpu.read(self.back, 0..4, |bytes| bytemuck::cast_slice(bytes)[0]).await
    }
}

#[cfg(test)]
mod test;
