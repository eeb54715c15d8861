//! What runs a model: which executor, and on which device.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_model::{Executor, LoadedWeights, ModelSpec, reference::Reference};

use crate::{Error, OpenOptions, Result};

/// What runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The first GPU that the model can be loaded on, never software that plays one; else the CPU. The log says why a GPU
    /// that is there was not taken, and [`Model::backend`](crate::Model::backend) which it is.
    #[default]
    Auto,
    /// SIMD and threads.
    Cpu,
    /// WebGPU; software that plays a GPU only where there is no other, or where it was named.
    Gpu,
    /// The specification in plain loops: slow, and right.
    Reference,
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Backend::Auto),
            "cpu" => Ok(Backend::Cpu),
            "gpu" => Ok(Backend::Gpu),
            "reference" => Ok(Backend::Reference),
            _ => Err(format!("`{name}` is none of auto, cpu, gpu, reference")),
        }
    }
}

/// An executor, and the model on its GPU where it is on one.
pub(crate) struct Runner {
    pub executor: Box<dyn Executor>,
    #[cfg(feature = "gpu")]
    pub gpu: Option<std::rc::Rc<selkie_gpu::Engine>>,
}

impl Runner {
    fn host(executor: impl Executor + 'static) -> Self {
        Self {
            executor: Box::new(executor),
            #[cfg(feature = "gpu")]
            gpu: None,
        }
    }
}

/// What runs the model in `file`.
pub(crate) fn runner(file: &str, spec: &ModelSpec, weights: LoadedWeights, options: &OpenOptions) -> Result<Runner> {
    match options.backend {
        Backend::Reference => Ok(Runner::host(Reference::<f64>::new(spec.clone(), weights))),
        Backend::Gpu => gpu::named(file, spec, weights, options),
        Backend::Auto => match gpu::hardware(spec, &weights, options) {
            Some(runner) => Ok(runner),
            None => cpu(file, spec, weights, options),
        },
        Backend::Cpu => cpu(file, spec, weights, options),
    }
}

fn cpu(file: &str, spec: &ModelSpec, weights: LoadedWeights, options: &OpenOptions) -> Result<Runner> {
    let cpu = CpuOptions { threads: options.threads, exact: options.exact };
    let named = |error| Error::Checkpoint { file: file.to_owned(), error };
    Ok(Runner::host(CpuExecutor::new(spec, weights, &cpu).map_err(named)?))
}

#[cfg(feature = "gpu")]
mod gpu {
    use pollster::block_on;
    use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions};
    use selkie_model::{LoadedWeights, ModelSpec};

    use super::Runner;
    use crate::{Error, OpenOptions, Result};

    /// The device that was asked for, or else the first that there is.
    pub(super) fn named(file: &str, spec: &ModelSpec, weights: LoadedWeights, options: &OpenOptions) -> Result<Runner> {
        let wanted = GpuOptions { device: options.device.clone(), software: true, ..GpuOptions::default() };
        let gpu = block_on(Gpu::open(&wanted)).map_err(|error| Error::Backend(error.to_string()))?;
        if gpu.is_software() {
            tracing::warn!("{} is software that plays a GPU: slower than the CPU executor", gpu.name());
        }
        let named = |error| Error::Checkpoint { file: file.to_owned(), error };
        block_on(GpuExecutor::new(gpu, spec, weights, &run_options(spec, options))).map(on_gpu).map_err(named)
    }

    /// A device that is no software, where there is one and it takes the model.
    pub(super) fn hardware(spec: &ModelSpec, weights: &LoadedWeights, options: &OpenOptions) -> Option<Runner> {
        let gpu = match block_on(Gpu::open(&GpuOptions::default())) {
            Ok(gpu) => gpu,
            Err(error @ selkie_gpu::Error::NoAdapter(_)) => {
                tracing::debug!("{error}: the model runs on the CPU");
                return None;
            }
            Err(error) => {
                tracing::warn!("{error}: the model runs on the CPU");
                return None;
            }
        };
        let name = gpu.name().to_owned();
        // Both executors would read the same mapped bytes: the clone is of handles.
        match block_on(GpuExecutor::new(gpu, spec, weights.clone(), &run_options(spec, options))) {
            Ok(executor) => Some(on_gpu(executor)),
            Err(error) => {
                tracing::warn!("{name} does not take the model, which runs on the CPU: {error}");
                None
            }
        }
    }

    fn on_gpu(executor: GpuExecutor) -> Runner {
        let gpu = Some(executor.share());
        Runner { executor: Box::new(executor), gpu }
    }

    /// Positions that any model may hold, whatever it was made for: what it computes past that can be compared, too.
    const POSITIONS: usize = 131_072;
    /// Positions that are expected where nobody says.
    const CONTEXT: usize = 2048;

    fn run_options(spec: &ModelSpec, options: &OpenOptions) -> RunOptions {
        // Only attention has a limit: a recurrent state neither grows nor counts.
        let longest = spec.context.unwrap_or(POSITIONS).max(POSITIONS);
        let max_positions = if spec.has_attention() { longest } else { usize::MAX };
        let context = options.context.unwrap_or_else(|| spec.context.unwrap_or(CONTEXT).min(CONTEXT));
        RunOptions { exact: options.exact, max_positions, context, ..RunOptions::default() }
    }
}

#[cfg(not(feature = "gpu"))]
mod gpu {
    use selkie_model::{LoadedWeights, ModelSpec};

    use super::Runner;
    use crate::{Error, OpenOptions, Result};

    pub(super) fn named(_: &str, _: &ModelSpec, _: LoadedWeights, _: &OpenOptions) -> Result<Runner> {
        let what = "this build has no GPU executor; `--backend cpu` runs the model on the processor";
        Err(Error::Backend(what.into()))
    }

    pub(super) fn hardware(_: &ModelSpec, _: &LoadedWeights, _: &OpenOptions) -> Option<Runner> {
        None
    }
}
