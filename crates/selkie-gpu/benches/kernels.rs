//! What the kernels reach on the first GPU: `cargo bench -p selkie-gpu --bench kernels [FILTER]`, or on software that plays one.
//!
//! Each folder of kernels says in its `bench.rs` at which sizes, of models that there are, and how many bytes have to move at
//! least. Times are the device's own where it has a clock, and those of whole submits otherwise.

use std::time::{Duration, Instant};

use selkie_formats::{DType, Tensor};
use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions, compile::Regime};
use selkie_model::{Batch, Executor, SamplingParams, Sequence, Snapshot, State, Want, plan::BufferId};

#[expect(dead_code, reason = "tests build more than benches do")]
#[path = "../src/kernels/rig.rs"]
mod rig;

/// Each folder's cases, by its name.
macro_rules! folders {
    ($($name:ident: $path:literal,)*) => {
        $(#[path = $path]
        mod $name;)*
        const FOLDERS: &[(&str, fn() -> Vec<Case>)] = &[$((stringify!($name), $name::cases)),*];
    };
}
folders! {
    attention: "../src/kernels/attention/bench.rs",
    conv: "../src/kernels/conv/bench.rs",
    cssd: "../src/kernels/cssd/bench.rs",
    delta: "../src/kernels/delta/bench.rs",
    embed: "../src/kernels/embed/bench.rs",
    heads: "../src/kernels/heads/bench.rs",
    mamba3: "../src/kernels/mamba3/bench.rs",
    mixture: "../src/kernels/mixture/bench.rs",
    product: "../src/kernels/product/bench.rs",
    ranks: "../src/kernels/ranks/bench.rs",
    rope: "../src/kernels/rope/bench.rs",
    rows: "../src/kernels/rows/bench.rs",
    sample: "../src/kernels/sample/bench.rs",
    scan: "../src/kernels/scan/bench.rs",
    ssd: "../src/kernels/ssd/bench.rs",
    take_rows: "../src/kernels/take_rows/bench.rs",
}

/// Rows of a block.
const BLOCK: usize = 512;
/// A pass before any is measured, and those that are at most.
const WARM: usize = 1;
const RUNS: usize = 10;
/// About how long they may take.
const LONGEST: Duration = Duration::from_secs(2);

/// Ops at some sizes.
struct Case {
    name: String,
    rig: rig::Rig,
    /// The last op's result.
    out: BufferId,
    /// Rows of a pass: one is a token.
    rows: usize,
    /// Positions before it.
    past: usize,
    /// What has to move at least, in bytes.
    bytes: usize,
    /// The kernels that are looked at, where they are not those of the ops.
    kernels: &'static [&'static str],
    /// How tokens are chosen, where that is what is measured.
    choice: Option<SamplingParams>,
}

impl Case {
    /// A token after nothing.
    fn new(name: impl Into<String>, rig: rig::Rig, out: BufferId, bytes: usize) -> Self {
        Self { name: name.into(), rig, out, rows: 1, past: 0, bytes, kernels: &[], choice: None }
    }

    /// The time of a pass: the ops' alone, or all of it where the device has no clock.
    fn run(&self) -> (Duration, bool) {
        let (spec, plan) = self.rig.model(self.out);
        let capacity = self.past + self.rows * (WARM + RUNS);
        let options = RunOptions {
            block_rows: BLOCK,
            block_outputs: self.rows,
            max_positions: capacity,
            ..RunOptions::default()
        };
        let weights: selkie_model::LoadedWeights = self.rig.loaded.iter().cloned().collect();
        let made = GpuExecutor::with_plan(rig::gpu(), &spec, plan, weights, &options);
        let mut executor = pollster::block_on(made).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut state = pollster::block_on(executor.restore(&self.before(), capacity)).expect("a state");
        let regime = if self.rows == 1 { Regime::Token } else { Regime::Block };
        let rows = executor.engine().table(regime).rows();
        let own: Vec<&str> = rows.filter(|row| row.layer.is_some()).map(|row| row.kernel).collect();
        (0..WARM).for_each(|_| self.pass(&mut executor, &mut state));
        executor.profile(true);
        let started = Instant::now();
        let mut runs = 0;
        while runs < RUNS && (runs == 0 || started.elapsed() < LONGEST) {
            self.pass(&mut executor, &mut state);
            runs += 1;
        }
        let all = started.elapsed() / runs as u32;
        let times = executor.take_profile();
        let looked_at = |op: &str| self.kernels.contains(&op) || (self.kernels.is_empty() && own.contains(&op));
        let time: Duration = times.iter().filter(|time| looked_at(time.op)).map(|time| time.time).sum();
        if time.is_zero() { (all, false) } else { (time / runs as u32, true) }
    }

    /// The state after `past` positions: zeros take as long as what models would have there.
    fn before(&self) -> Snapshot {
        let zeros = |(_, shape): (&str, Vec<usize>)| {
            let bytes = vec![0; 4 * shape.iter().product::<usize>()].into();
            Tensor { dtype: DType::F32, shape, bytes }
        };
        let planes = self.rig.slots.iter().flat_map(|slot| slot.planes(self.past)).map(zeros).collect();
        Snapshot { positions: self.past, planes }
    }

    fn pass(&self, executor: &mut GpuExecutor, state: &mut State) {
        if let Some(params) = &self.choice {
            let choice = selkie_model::Choice { params, seed: 1, sequence: 0, stop: &[] };
            pollster::block_on(executor.generate(0, 1, &choice, state)).expect("a pass").expect("a token");
            return;
        }
        let rows = self.rows;
        let ids: Vec<u32> = (0..rows).map(|i| (i % self.rig.tokens) as u32).collect();
        let outputs: Vec<usize> = (0..rows).collect();
        let sequences = [Sequence { rows: 0..rows }];
        let batch = Batch { ids: &ids, sequences: &sequences, outputs: &outputs, want: Want::Hidden };
        pollster::block_on(executor.forward(&batch, &mut [state])).expect("a pass");
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let gpu = rig::gpu();
    let read = pollster::block_on(gpu.measure()).expect("a device that can be measured").read;
    println!("{}: reads {:.1} GB/s", gpu.name(), read / 1e9);
    for (folder, cases) in FOLDERS.iter().filter(|folder| folder.0.contains(&filter)) {
        for case in cases() {
            let (time, own) = case.run();
            let rate = case.bytes as f64 / time.as_secs_f64();
            let (micros, share) = (time.as_secs_f64() * 1e6, 100.0 * rate / read);
            let of = if own { "" } else { ", of a whole submit" };
            println!("{folder:10} {:44} {micros:10.1} us {:8.1} GB/s {share:6.1} %{of}", case.name, rate / 1e9);
        }
    }
}
