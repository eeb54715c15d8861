//! Holding what runs a model to the reference, where it runs.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_formats::{
    Checkpoint, DType,
    mbjs::{Config, LayerKind},
};
use selkie_model::{
    Executor, LoadedWeights, ModelSpec, Plan, families,
    plan::{fuse, plan},
    reference::Reference,
    self_test::{off, product, run},
    weights::WeightSource,
};
use serde_json::json;
use web_time::{Duration, Instant};

use crate::{Error, Model, Result, block_on};

/// What came of one comparison with the reference, which computes in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was computed.
    pub name: String,
    /// How far off it is: the root of the mean square by that of what is right.
    pub error: f64,
    /// How far it may be.
    pub tolerance: f64,
    /// How long it took, the making of kernels included.
    pub time: Duration,
}

impl Check {
    /// Whether it is as right as it should be.
    pub fn ok(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// f32 against f64.
const EXACT: f64 = 1e-4;
/// Where activations are rounded to 8 bits.
const ROUNDED: f64 = 0.06;
/// Rows of a matrix at most: what is wrong with a kernel shows in these.
const ROWS: usize = 512;
/// What no file has to be there for.
const KINDS: [LayerKind; 4] = [LayerKind::Mamba1, LayerKind::Mamba2, LayerKind::Mamba3, LayerKind::Attention];

impl Model {
    /// The names of the matrices that [`check_matrix`](Self::check_matrix) takes, with their sizes and types.
    pub fn matrices(&self) -> Vec<(String, [usize; 2], DType)> {
        let weights = self.spec.weights.iter().filter(|(_, weight)| weight.shape.len() > 1);
        weights.map(|(_, w)| (w.name.clone(), [w.rows(), w.row_len()], w.dtype())).collect()
    }

    /// Layers of each kind, with random weights, through this model's executor.
    ///
    /// # Errors
    /// Where one cannot run at all.
    pub async fn check_kernels(&self) -> Result<Vec<Check>> {
        let mut checks = vec![];
        for kind in KINDS {
            let settings = json!({
                "vocabSize": 96, "dModel": 64, "numLayers": 2, "nHeads": 2, "dState": 16,
                "layers": [{ "type": kind.name() }, { "type": kind.name() }],
            });
            let config = Config::from_json("check", settings)?;
            let checkpoint = Checkpoint::fresh_mbjs(&config, 7)?;
            let spec = families::read(&checkpoint, None)?;
            let weights = spec.weights.load(&checkpoint).await?;
            let plan = fuse(plan(&spec));
            checks.extend(self.check(&format!("layers of {}", kind.name()), &spec, plan, weights, true, EXACT).await?);
        }
        Ok(checks)
    }

    /// The product of a matrix of the model, as it is stored, with a block of rows and with single ones: with all that
    /// this model's executor rounds, and in f32.
    ///
    /// # Errors
    /// Where there is no such matrix, or it cannot be read.
    pub async fn check_matrix(&self, name: &str) -> Result<Vec<Check>> {
        let found = self.spec.weights.iter().find(|(_, w)| w.name == name && w.shape.len() > 1);
        let (id, weight) = found.ok_or_else(|| Error::Arguments(format!("the model has no matrix `{name}`")))?;
        let source = WeightSource::Stored(&self.opened().checkpoint);
        let read = source.rows(&self.spec.weights, id, 0..weight.rows().min(ROWS)).await?;
        let mut parts = read.parts.into_iter();
        let matrix = parts.next().ok_or_else(|| Error::Arguments(format!("`{name}` has no rows")))?;
        let mut checks = vec![];
        for (exact, tolerance) in [(true, EXACT), (false, ROUNDED)] {
            let (spec, plan, weights) = product(matrix.clone());
            let what = if exact { "f32 activations" } else { "rounded activations" };
            let name = format!("{name} ({} of {} rows, {}, {what})", matrix.shape[0], weight.rows(), matrix.dtype);
            checks.extend(self.check(&name, &spec, plan, weights, exact, tolerance).await?);
        }
        Ok(checks)
    }

    async fn check(
        &self,
        name: &str,
        spec: &ModelSpec,
        plan: Plan,
        weights: LoadedWeights,
        exact: bool,
        tolerance: f64,
    ) -> Result<[Check; 2]> {
        let mut reference = Reference::<f64>::with_plan(spec.clone(), plan.clone(), weights.clone());
        let right = run(&mut reference).await?;
        let started = Instant::now();
        let mut executor = self.executor_for(spec, plan, weights, exact).await?;
        let got = run(executor.as_mut()).await?;
        let time = started.elapsed();
        let check = |i: usize, rows: &str| Check {
            name: format!("{name}, {rows}"),
            error: off(&got[i], &right[i]),
            tolerance,
            time,
        };
        Ok([check(0, "a block of rows"), check(1, "single rows")])
    }

    /// An executor of the kind and on the device that this model's is.
    async fn executor_for(
        &self,
        spec: &ModelSpec,
        plan: Plan,
        weights: LoadedWeights,
        exact: bool,
    ) -> Result<Box<dyn Executor>> {
        #[cfg(feature = "gpu")]
        if let Some(engine) = self.gpu() {
            let options = selkie_gpu::RunOptions { exact, block_rows: 64, block_outputs: 64, ..Default::default() };
            let gpu = engine.gpu().clone();
            let made = selkie_gpu::GpuExecutor::with_plan(gpu, spec, plan, weights, &options).await;
            return Ok(Box::new(made?));
        }
        let options = CpuOptions { threads: Some(1), exact };
        Ok(Box::new(CpuExecutor::with_plan(spec, plan, weights, &options)?))
    }

    /// As [`check_matrix`](Self::check_matrix) and, where no matrix is named, [`check_kernels`](Self::check_kernels).
    ///
    /// # Errors
    /// As there.
    pub fn check_now(&self, matrix: Option<&str>) -> Result<Vec<Check>> {
        match matrix {
            Some(name) => block_on(self.check_matrix(name)),
            None => block_on(self.check_kernels()),
        }
    }
}
