//! A small model to hold an executor to the reference with: a norm and a product, of a block of rows and of single ones.

use selkie_formats::{Tensor, TensorInfo};

use crate::{
    Batch, Executor, LoadedWeight, LoadedWeights, ModelSpec, Plan, Result, Sequence, Want, WeightId, Weights,
    plan::{Buffer, BufferId, Op, Product, Rows},
    spec::{Linear, Norm},
    weights::{Part, Transform, Weight, f32_tensor},
};

/// Rows of the block.
pub const BLOCK: usize = 37;
/// All rows.
pub const TOKENS: usize = BLOCK + 2;

/// A model of nothing but `logits = norm(embedding) · matrixᵀ`, for `[rows, cols]`.
pub fn product(matrix: Tensor) -> (ModelSpec, Plan, LoadedWeights) {
    let (out_rows, width) = (matrix.shape[0], matrix.shape[1]);
    // Numbers of both signs, no two rows alike.
    let value = |i: usize| ((i.wrapping_mul(0x9e37_79b9) >> 7) % 2048) as f32 / 1024.0 - 1.0;
    let table = f32_tensor((0..TOKENS * width).map(value).collect(), vec![TOKENS, width]);
    let (mut weights, mut loaded) = (Weights::default(), vec![]);
    let mut push = |name: &str, tensor: Tensor| {
        let info = TensorInfo {
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
            buffer("y", Rows::All, out_rows),
            buffer("logits", Rows::Outputs, out_rows),
        ],
        slots: vec![],
        hidden: out,
        logits: out,
    };
    let spec = ModelSpec {
        architecture: "self-test".into(),
        d_model: width,
        vocab_size: TOKENS.max(out_rows),
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

/// Results of a block of rows, which fill no tile, and of two single ones after it.
///
/// # Errors
/// The executor's.
pub async fn run(executor: &mut dyn Executor) -> Result<[Vec<f32>; 2]> {
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
    Ok([results.concat(), singles])
}

/// How far off a result is: the root of the mean square by that of what is right. NaN where there is none.
pub fn off(got: &[f32], right: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut got.iter().zip(right).map(|(&g, &r)| f64::from(g) - f64::from(r)));
    let size = square(&mut right.iter().map(|&r| f64::from(r)));
    if got.len() != right.len() || got.is_empty() {
        f64::NAN
    } else {
        (difference / size.max(f64::MIN_POSITIVE)).sqrt()
    }
}
