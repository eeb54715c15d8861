//! A rig for tests and benches of kernels: a few ops over random values, as a model.
//!
//! Inputs come from tables by the ids of the rows, so nothing but the executors' own ways in and out is needed. Passes of one
//! row are of the token's regime, all others of the blocks'.

use std::sync::OnceLock;

use selkie_formats::{DType, Tensor, TensorInfo, quant};
use selkie_model::{
    LoadedWeight, ModelSpec, Plan, WeightId, Weights,
    plan::{Buffer, BufferId, Op, Product, Rows, Slot, SlotId},
    rope::RopeSpec,
    spec::{Linear, Norm},
    weights::{Part, Transform, Weight, f32_tensor},
};

use crate::{Gpu, GpuOptions};

/// One device for all tests, so that kernels are made once.
pub(crate) fn gpu() -> Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let open = || {
        let options = GpuOptions { software: true, ..GpuOptions::default() };
        pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
    };
    GPU.get_or_init(open).clone()
}

/// Numbers that look random, the same in every run.
struct Seeded(u64);

impl Seeded {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn between(&mut self, low: f32, high: f32, n: usize) -> Vec<f32> {
        (0..n).map(|_| low + (high - low) * (self.bits() >> 40) as f32 / (1 << 24) as f32).collect()
    }
}

/// A few ops with what they read.
pub(crate) struct Rig {
    random: Seeded,
    /// Rows with different inputs; then inputs come again.
    pub tokens: usize,
    weights: Weights,
    /// The weights' values.
    pub loaded: Vec<LoadedWeight>,
    ropes: Vec<RopeSpec>,
    buffers: Vec<Buffer>,
    /// Of the state.
    pub slots: Vec<Slot>,
    /// Each with whether it is under test.
    ops: Vec<(Op, bool)>,
    /// f32 throughout, unless a test says otherwise.
    pub exact: bool,
    /// Where it runs.
    pub gpu: Gpu,
}

impl Rig {
    /// Nothing yet. `seed` makes other values.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Seeded(seed),
            tokens: 97,
            weights: Weights::default(),
            loaded: vec![],
            ropes: vec![],
            buffers: vec![],
            slots: vec![],
            ops: vec![],
            exact: true,
            gpu: gpu(),
        }
    }

    /// An input of that width, between -1 and 1.
    pub fn input(&mut self, width: usize) -> BufferId {
        self.input_between(width, -1.0, 1.0)
    }

    /// An input of that width, of values between `low` and `high`.
    pub fn input_between(&mut self, width: usize, low: f32, high: f32) -> BufferId {
        let table = self.vector_between(&[self.tokens, width], low, high);
        let out = self.buffer(width);
        self.ops.push((Op::Embed { table, scale: 1.0, out }, false));
        out
    }

    /// Inputs of these widths side by side in one place, as products that share an input leave them; about -1 to 1.
    pub fn inputs<const N: usize>(&mut self, widths: [usize; N]) -> [BufferId; N] {
        let x = self.input(8);
        let products = widths.map(|width| {
            let weight = self.vector_between(&[width, 8], -0.6, 0.6);
            Product { weight, bias: None, out: self.buffer(width) }
        });
        self.ops.push((Op::Linears { x, products: products.to_vec() }, false));
        products.map(|product| product.out)
    }

    /// A buffer for what an op writes.
    pub fn buffer(&mut self, width: usize) -> BufferId {
        self.buffers.push(Buffer { name: "values", rows: Rows::All, width });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// The width of a buffer.
    pub fn width(&self, id: BufferId) -> usize {
        self.buffers[id.0 as usize].width
    }

    /// A weight in f32, between -1 and 1.
    pub fn vector(&mut self, shape: &[usize]) -> WeightId {
        self.vector_between(shape, -1.0, 1.0)
    }

    /// A weight in f32, of values between `low` and `high`.
    pub fn vector_between(&mut self, shape: &[usize], low: f32, high: f32) -> WeightId {
        let values = self.random.between(low, high, shape.iter().product());
        self.weight(shape, values)
    }

    /// A weight in f32, of these values.
    pub fn weight(&mut self, shape: &[usize], values: Vec<f32>) -> WeightId {
        let row_len = shape.last().copied().unwrap_or(1);
        let rows = values.len() / row_len;
        self.push_weight(shape, vec![f32_tensor(values, vec![rows, row_len])])
    }

    /// A matrix, or a stack of them, stored as `dtype`; about -1 to 1 over the root of a row's length.
    pub fn matrix(&mut self, dtype: DType, shape: &[usize]) -> WeightId {
        let row_len = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().product::<usize>() / row_len;
        let tensor = self.tensor(dtype, rows, row_len);
        self.push_weight(shape, vec![tensor])
    }

    /// A matrix whose rows are of several types: each with how many.
    pub fn rows_of(&mut self, types: &[(DType, usize)], row_len: usize) -> WeightId {
        let tensors = types.iter().map(|&(dtype, rows)| self.tensor(dtype, rows, row_len)).collect();
        self.push_weight(&[types.iter().map(|part| part.1).sum(), row_len], tensors)
    }

    /// As [`matrix`](Self::matrix), in as many tensors of equal size as there are types.
    pub fn stack(&mut self, dtypes: &[DType], shape: &[usize]) -> WeightId {
        let row_len = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().product::<usize>() / row_len / dtypes.len();
        let tensors = dtypes.iter().map(|&dtype| self.tensor(dtype, rows, row_len)).collect();
        self.push_weight(shape, tensors)
    }

    fn tensor(&mut self, dtype: DType, rows: usize, row_len: usize) -> Tensor {
        let most = (row_len as f32).sqrt().recip();
        let mut bytes = vec![0; rows * dtype.row_bytes(row_len).expect("whole blocks")];
        if quant::can_encode(dtype) {
            let values = self.random.between(-most, most, rows * row_len);
            quant::encode(dtype, &values, &mut bytes).expect("an encoder");
        } else {
            // Whatever bits, below a scale in front.
            let (block, scale): (usize, &[u8]) = match dtype {
                DType::MXFP4 => (17, &[120]),
                DType::IQ2_XS => (74, &[0x00, 0x20]),
                _ => panic!("blocks of {dtype}"),
            };
            bytes.iter_mut().for_each(|byte| *byte = self.random.bits() as u8);
            bytes.chunks_exact_mut(block).for_each(|block| block[..scale.len()].copy_from_slice(scale));
        }
        Tensor { dtype, shape: vec![rows, row_len], bytes: bytes.into() }
    }

    fn push_weight(&mut self, shape: &[usize], tensors: Vec<Tensor>) -> WeightId {
        let name = format!("weight {}", self.loaded.len());
        let part = |tensor: &Tensor| {
            let range = 0..tensor.bytes.len() as u64;
            let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
            let info = TensorInfo { name: name.clone(), dtype, shape, source: 0, range };
            Part { tensor: info, rows: 0..tensor.shape[0], row_len: tensor.shape[1] }
        };
        let parts = tensors.iter().map(part).collect();
        let shape = shape.to_vec();
        self.loaded.push(LoadedWeight { name: name.clone(), shape: shape.clone(), parts: tensors });
        self.weights.push(Weight { name, shape, parts, transform: Transform::None })
    }

    /// A slot of the state.
    pub fn slot(&mut self, slot: Slot) -> SlotId {
        self.slots.push(slot);
        SlotId(self.slots.len() as u32 - 1)
    }

    /// A rotary embedding, which ops name by the number that this gives.
    pub fn rope(&mut self, rope: RopeSpec) -> usize {
        self.ropes.push(rope);
        self.ropes.len() - 1
    }

    /// Adds an op to be tested.
    pub fn op(&mut self, op: Op) {
        self.ops.push((op, true));
    }

    /// The ops as a model whose logits are `out`.
    pub fn model(&self, out: BufferId) -> (ModelSpec, Plan) {
        let mut buffers = self.buffers.clone();
        let logits = BufferId(buffers.len() as u32);
        let width = buffers[out.0 as usize].width;
        buffers.push(Buffer { name: "wanted", rows: Rows::Outputs, width });
        let mut ops: Vec<(Op, bool)> = self.ops.clone();
        ops.push((Op::TakeRows { x: out, out: logits }, false));
        let plan = Plan {
            layer_of: ops.iter().map(|op| op.1.then_some(0)).collect(),
            ops: ops.into_iter().map(|op| op.0).collect(),
            layers: vec!["under test".into()],
            buffers,
            slots: self.slots.clone(),
            hidden: logits,
            logits,
        };
        let spec = ModelSpec {
            architecture: "rig".into(),
            d_model: width,
            vocab_size: self.tokens.max(width),
            context: None,
            embedding: WeightId(0),
            embedding_scale: 1.0,
            layers: vec![],
            final_norm: Norm { weight: None, group: width, eps: 0.0 },
            head: Linear { weight: WeightId(0), bias: None, low_rank: None },
            logit_scale: 1.0,
            logit_softcap: None,
            ropes: self.ropes.clone(),
            weights: self.weights.clone(),
        };
        (spec, plan)
    }
}
