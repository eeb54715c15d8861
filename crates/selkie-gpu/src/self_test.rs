//! Whether a device's own kernels do what they should, before a model relies on them.
//!
//! Shaders are written once over flavours; the plain one needs nothing but what WebGPU promises, the others rest on drivers
//! too. So a norm and a product of a few of the model's own rows run in both regimes, and plain loops say what is right.

use std::rc::Rc;

use selkie_formats::{DType, Tensor};
use selkie_model::{
    Batch, Executor, LoadedWeight, LoadedWeights, ModelSpec, Plan, Sequence, Want, WeightId, Weights,
    plan::{Buffer, BufferId, Op, Product, Rows},
    reference::Reference,
    spec::{Linear, Norm},
    weights::{Part, Transform, Weight, f32_tensor},
};

use crate::{
    Error, Gpu, GpuExecutor, Result,
    engine::{Engine, RunOptions},
};

/// Rows of the matrix, a whole number of any kernel's.
const OUT: usize = 32;
/// Rows of the block, which fill no tile; two single ones follow.
const BLOCK: usize = 37;
const TOKENS: usize = BLOCK + 2;

/// How far off a result may be: the root of the mean square by that of what is right. What a kernel does wrong is larger.
const EXACT: f64 = 1e-3;
const ROUNDED: f64 = 0.06;

/// What a test depends on.
pub(crate) type Key = (DType, usize, bool);

/// Tests the device with the flavours that it has, once for each type and width of a model's matrices.
///
/// # Errors
/// Where a kernel cannot be made or run, or is off.
pub(crate) async fn check(gpu: &Gpu, spec: &ModelSpec, weights: &LoadedWeights, exact: bool) -> Result<()> {
    let Some(matrix) = sample(spec, weights) else { return Ok(()) };
    let key = (matrix.dtype, matrix.shape[1], exact);
    if gpu.has_passed(key) {
        return Ok(());
    }
    let (small, plan, weights) = model(matrix);
    let options =
        RunOptions { exact, block_rows: BLOCK, block_outputs: BLOCK, max_positions: TOKENS, ..RunOptions::default() };
    let right = async {
        let mut reference = Reference::<f64>::with_plan(small.clone(), plan.clone(), weights.clone());
        run(&mut reference).await
    };
    let right = right.await.map_err(|e| Error::Op { op: "self-test".into(), what: e.to_string() })?;
    let engine = Box::pin(Engine::with_plan(gpu.clone(), &small, plan, weights, &options)).await?;
    let mut executor = GpuExecutor::of(Rc::new(engine));
    let got = match run(&mut executor).await {
        Ok(got) => got,
        Err(selkie_model::Error::DeviceLost(why)) => return Err(Error::Lost(why)),
        Err(error) => return Err(Error::SelfTest(error.to_string())),
    };
    let allowed = if exact { EXACT } else { ROUNDED };
    for (what, got, right) in [("rows", &got.0, &right.0), ("a row", &got.1, &right.1)] {
        let off = off(got, right);
        tracing::debug!("self-test of products with {what} of {} on {}: off by {off:.1e}", key.0, gpu.name());
        // Not the other way round: no number is not small.
        if !(off <= allowed) {
            return Err(Error::SelfTest(format!("products with {what} of {} are off by {off:.1e}", key.0)));
        }
    }
    gpu.pass(key);
    Ok(())
}

/// A few rows of the type that most of the matrices with the model's width have.
fn sample(spec: &ModelSpec, weights: &LoadedWeights) -> Option<Tensor> {
    let parts = spec.weights.iter().filter(|(_, weight)| weight.row_len() == spec.d_model);
    let parts = parts.flat_map(|(id, _)| &weights.get(id).parts);
    let fitting = |part: &&Tensor| part.shape.len() == 2 && part.shape[0] >= OUT && part.shape[1] == spec.d_model;
    let parts: Vec<&Tensor> = parts.filter(fitting).collect();
    let of_type = |dtype| parts.iter().filter(|part| part.dtype == dtype).map(|part| part.bytes.len()).sum::<usize>();
    let part = parts.iter().max_by_key(|part| of_type(part.dtype))?;
    let bytes = part.bytes.slice(..part.bytes.len() / part.shape[0] * OUT);
    Some(Tensor { dtype: part.dtype, shape: vec![OUT, spec.d_model], bytes })
}

/// `logits = norm(embedding) · matrixᵀ`.
fn model(matrix: Tensor) -> (ModelSpec, Plan, LoadedWeights) {
    let width = matrix.shape[1];
    // Numbers of both signs, no two rows alike.
    let value = |i: usize| ((i.wrapping_mul(0x9e37_79b9) >> 7) % 2048) as f32 / 1024.0 - 1.0;
    let table = f32_tensor((0..TOKENS * width).map(value).collect(), vec![TOKENS, width]);
    let (mut weights, mut loaded) = (Weights::default(), vec![]);
    let mut push = |name: &str, tensor: Tensor| {
        let info = selkie_formats::TensorInfo {
            name: name.into(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            source: 0,
            range: 0..tensor.bytes.len() as u64,
        };
        let part = Part { tensor: info, rows: 0..tensor.shape[0], row_len: width };
        let (name, shape) = (name.to_owned(), tensor.shape.clone());
        loaded.push(LoadedWeight { name: name.clone(), shape: shape.clone(), parts: vec![tensor] });
        weights.push(Weight { name, shape, parts: vec![part], transform: Transform::None })
    };
    let (embedding, weight): (WeightId, WeightId) = (push("table", table), push("matrix", matrix));
    let buffer = |name, rows, width| Buffer { name, rows, width };
    let [x, n, y, out] = [0, 1, 2, 3].map(BufferId);
    let ops = vec![
        Op::Embed { table: embedding, scale: 1.0, out: x },
        Op::RmsNorm { x, weight: None, group: width, eps: 1e-6, out: n },
        Op::Linear { x: n, product: Product { weight, bias: None, out: y } },
        Op::TakeRows { x: y, out },
    ];
    let plan = Plan {
        layer_of: vec![None; ops.len()],
        ops,
        layers: vec![],
        buffers: vec![
            buffer("x", Rows::All, width),
            buffer("n", Rows::All, width),
            buffer("y", Rows::All, OUT),
            buffer("logits", Rows::Outputs, OUT),
        ],
        slots: vec![],
        hidden: out,
        logits: out,
    };
    let spec = ModelSpec {
        architecture: "self-test".into(),
        d_model: width,
        vocab_size: TOKENS.max(OUT),
        context: None,
        embedding,
        embedding_scale: 1.0,
        layers: vec![],
        final_norm: Norm { weight: None, group: width, eps: 0.0 },
        head: Linear { weight, bias: None, low_rank: None },
        logit_scale: 1.0,
        logit_softcap: None,
        ropes: vec![],
        weights,
    };
    (spec, plan, loaded.into_iter().collect())
}

/// Results of the block, and of the single rows.
async fn run(executor: &mut dyn Executor) -> selkie_model::Result<(Vec<f32>, Vec<f32>)> {
    let mut state = executor.new_state(TOKENS).await?;
    let ids: Vec<u32> = (0..TOKENS as u32).collect();
    let mut results = vec![];
    for ids in [&ids[..BLOCK], &ids[BLOCK..=BLOCK], &ids[BLOCK + 1..]] {
        let (sequences, outputs): (_, Vec<usize>) = ([Sequence { rows: 0..ids.len() }], (0..ids.len()).collect());
        // The graph's last buffer is as wide as the matrix has rows.
        let batch = Batch { ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
        results.push(executor.forward(&batch, &mut [&mut state]).await?.values);
    }
    let singles = results.split_off(1).concat();
    Ok((results.concat(), singles))
}

fn off(got: &[f32], right: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut got.iter().zip(right).map(|(&g, &r)| f64::from(g) - f64::from(r)));
    let size = square(&mut right.iter().map(|&r| f64::from(r)));
    if got.len() != right.len() || got.is_empty() {
        f64::NAN
    } else {
        (difference / size.max(f64::MIN_POSITIVE)).sqrt()
    }
}
