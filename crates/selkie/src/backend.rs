//! What runs a model: which executor, and on which device.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_model::{Executor, LoadedWeights, ModelSpec, reference::Reference};

use crate::{Error, OpenOptions, Opened, Result, finite};

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

/// What runs the model.
pub(crate) async fn runner(opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<Runner> {
    match options.backend {
        Backend::Reference => Ok(Runner::host(Reference::<f64>::new(spec.clone(), load(opened, spec, options).await?))),
        Backend::Gpu => gpu::named(opened, spec, options).await,
        Backend::Auto => match gpu::hardware(opened, spec, options).await? {
            Some(runner) => Ok(runner),
            None => cpu(opened, spec, options).await,
        },
        Backend::Cpu => cpu(opened, spec, options).await,
    }
}

async fn cpu(opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<Runner> {
    let cpu = CpuOptions { threads: options.threads, exact: options.exact };
    let weights = load(opened, spec, options).await?;
    Ok(Runner::host(CpuExecutor::new(spec, weights, &cpu).map_err(named(opened))?))
}

/// All weights, in memory or mapped.
async fn load(opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<LoadedWeights> {
    let weights = spec.weights.load_watched(&opened.checkpoint, &options.watch).await.map_err(named(opened))?;
    finite::warn(opened, &spec.weights, &weights);
    Ok(weights)
}

fn named(opened: &Opened) -> impl Fn(selkie_model::Error) -> Error {
    |error| match error {
        selkie_model::Error::Cancelled => Error::Model(error),
        error => Error::Checkpoint { file: opened.files.name.clone(), error },
    }
}

#[cfg(feature = "gpu")]
mod gpu {
    use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions};
    use selkie_model::{ModelSpec, WeightSource};

    use super::{Runner, load, named as naming};
    use crate::{Error, OpenOptions, Opened, Result};

    /// The device that was asked for, or else the first that there is.
    pub(super) async fn named(opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<Runner> {
        let wanted = GpuOptions { device: options.device.clone(), software: true, ..gpu_options(options) };
        let gpu = Gpu::open(&wanted).await.map_err(|error| Error::Backend(error.to_string()))?;
        if gpu.is_software() {
            tracing::warn!("{} is software that plays a GPU: slower than the CPU executor", gpu.name());
        }
        on(gpu, opened, spec, options).await
    }

    /// A device that is no software, where there is one and it takes the model.
    pub(super) async fn hardware(opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<Option<Runner>> {
        let gpu = match Gpu::open(&gpu_options(options)).await {
            Ok(gpu) => gpu,
            Err(error @ selkie_gpu::Error::NoAdapter(_)) => {
                tracing::debug!("{error}: the model runs on the CPU");
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!("{error}: the model runs on the CPU");
                return Ok(None);
            }
        };
        let name = gpu.name().to_owned();
        match on(gpu, opened, spec, options).await {
            Ok(runner) => Ok(Some(runner)),
            Err(error @ Error::Model(selkie_model::Error::Cancelled)) => Err(error),
            Err(error) => {
                tracing::warn!("{name} does not take the model, which runs on the CPU: {error}");
                Ok(None)
            }
        }
    }

    async fn on(gpu: Gpu, opened: &Opened, spec: &ModelSpec, options: &OpenOptions) -> Result<Runner> {
        let weights = match options.streamed {
            true => WeightSource::Stored(&opened.checkpoint),
            false => WeightSource::Loaded(load(opened, spec, &OpenOptions::default()).await?),
        };
        let executor =
            GpuExecutor::new(gpu, spec, weights, &run_options(spec, options)).await.map_err(naming(opened))?;
        let gpu = Some(executor.share());
        Ok(Runner { executor: Box::new(executor), gpu })
    }

    fn gpu_options(options: &OpenOptions) -> GpuOptions {
        GpuOptions { memory: options.gpu_memory, subgroups: options.subgroups, ..GpuOptions::default() }
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
        RunOptions {
            exact: options.exact,
            max_positions,
            context,
            watch: options.watch.clone(),
            ..RunOptions::default()
        }
    }
}

#[cfg(not(feature = "gpu"))]
mod gpu {
    use selkie_model::ModelSpec;

    use super::Runner;
    use crate::{Error, OpenOptions, Opened, Result};

    pub(super) async fn named(_: &Opened, _: &ModelSpec, _: &OpenOptions) -> Result<Runner> {
        let what = "this build has no GPU executor; `--backend cpu` runs the model on the processor";
        Err(Error::Backend(what.into()))
    }

    pub(super) async fn hardware(_: &Opened, _: &ModelSpec, _: &OpenOptions) -> Result<Option<Runner>> {
        Ok(None)
    }
}
