//! Whether a device's own kernels do what they should, before a model relies on them.
//!
//! Shaders are written once over flavours; the plain one needs nothing but what WebGPU promises, the others rest on drivers
//! too. So a norm and a product of a few of the model's own rows run in both regimes, and plain loops say what is right.

use std::{ops::Range, rc::Rc};

use selkie_formats::DType;
use selkie_model::{
    ModelSpec, WeightId,
    reference::Reference,
    self_test::{BLOCK, TOKENS, off, product, run},
    weights::WeightSource,
};
use web_time::Instant;

use crate::{
    Error, Gpu, GpuExecutor, Result,
    engine::{Engine, RunOptions},
};

/// Rows of the matrix, a whole number of any kernel's.
const OUT: usize = 32;

/// How far off a result may be. What a kernel does wrong is larger.
const EXACT: f64 = 1e-3;
const ROUNDED: f64 = 0.06;

/// What a test depends on.
pub(crate) type Key = (DType, usize, bool);

/// Tests the device with the flavours that it has, once for each type and width of a model's matrices.
///
/// # Errors
/// Where a kernel cannot be made or run, or is off.
pub(crate) async fn check(gpu: &Gpu, spec: &ModelSpec, source: &WeightSource<'_>, exact: bool) -> Result<()> {
    let Some((dtype, id, rows)) = sample(spec, source) else { return Ok(()) };
    let key = (dtype, spec.d_model, exact);
    if gpu.has_passed(key) {
        return Ok(());
    }
    let started = Instant::now();
    let rows = source.rows(&spec.weights, id, rows).await?;
    let Some(matrix) = rows.parts.into_iter().next() else { return Ok(()) };
    let (small, plan, weights) = product(matrix);
    let options =
        RunOptions { exact, block_rows: BLOCK, block_outputs: BLOCK, max_positions: TOKENS, ..RunOptions::default() };
    let right = async {
        let mut reference = Reference::<f64>::with_plan(small.clone(), plan.clone(), weights.clone());
        run(&mut reference).await
    };
    let right = right.await.map_err(|e| Error::Op { op: "self-test".into(), what: e.to_string() })?;
    let engine = Box::pin(Engine::with_plan(gpu.clone(), &small, plan, weights.into(), &options)).await?;
    let mut executor = GpuExecutor::of(Rc::new(engine));
    let got = match run(&mut executor).await {
        Ok(got) => got,
        Err(selkie_model::Error::DeviceLost(why)) => return Err(Error::Lost(why)),
        Err(error) => return Err(Error::SelfTest(error.to_string())),
    };
    let allowed = if exact { EXACT } else { ROUNDED };
    for (what, got, right) in [("rows", &got[0], &right[0]), ("a row", &got[1], &right[1])] {
        let off = off(got, right);
        tracing::debug!("self-test on {}: products with {what} of {} are off by {off:.1e}", gpu.name(), key.0);
        if off.is_nan() || off > allowed {
            return Err(Error::SelfTest(format!("products with {what} of {} are off by {off:.1e}", key.0)));
        }
    }
    tracing::debug!("the self-test took {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
    gpu.pass(key);
    Ok(())
}

/// A few rows of the type that most of the matrices with the model's width have, and where they are.
fn sample(spec: &ModelSpec, source: &WeightSource<'_>) -> Option<(DType, WeightId, Range<usize>)> {
    let weights = spec.weights.iter().filter(|(_, weight)| weight.row_len() == spec.d_model && weight.shape.len() > 1);
    let mut found: Vec<(DType, WeightId, Range<usize>)> = vec![];
    for (id, _) in weights {
        let mut first = 0;
        for (dtype, rows) in source.types(&spec.weights, id) {
            if rows >= OUT {
                found.push((dtype, id, first..first + rows));
            }
            first += rows;
        }
    }
    let of_type = |dtype| found.iter().filter(|f| f.0 == dtype).map(|f| f.2.len()).sum::<usize>();
    let (dtype, ..) = *found.iter().max_by_key(|f| of_type(f.0))?;
    // What comes first in the file is there first.
    let place = |id: WeightId| spec.weights.get(id).parts.first().map(|p| (p.tensor.source, p.tensor.range.start));
    let (dtype, id, rows) = found.iter().filter(|f| f.0 == dtype).min_by_key(|f| place(f.1))?.clone();
    Some((dtype, id, rows.start..rows.start + OUT))
}
