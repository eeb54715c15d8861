//! A rig for tests of kernels: a few ops over random values, on a GPU and on the reference, passes one after another.
//!
//! Inputs come from tables by the ids of the rows, so nothing but the executors' own ways in and out is needed. Passes of one
//! row are of the token's regime, all others of the blocks'.

use std::sync::OnceLock;

use selkie_formats::{DType, Tensor, TensorInfo, quant};
use selkie_model::{
    Batch, Executor, LoadedWeight, ModelSpec, Plan, Sequence, Snapshot, State, Want, WeightId, Weights,
    plan::{Buffer, BufferId, Op, Product, Rows, Slot, SlotId},
    reference::Reference,
    rope::RopeSpec,
    spec::{Linear, Norm},
    weights::{Part, Transform, Weight, f32_tensor},
};

use crate::{
    Flavours, Gpu, GpuExecutor, GpuOptions, Limits, Result, RunOptions,
    compile::{Program, Regime, Target, compile, compile_block},
    weights::Needed,
};

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

/// The dispatches of the ops under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dispatches {
    /// For a token.
    pub token: usize,
    /// For blocks of rows, with one sequence in them.
    pub block: usize,
}

/// A few ops with what they read.
pub(crate) struct Rig {
    random: Seeded,
    /// Rows with different inputs; then inputs come again.
    tokens: usize,
    weights: Weights,
    loaded: Vec<LoadedWeight>,
    ropes: Vec<RopeSpec>,
    buffers: Vec<Buffer>,
    slots: Vec<Slot>,
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

    /// Runs `passes`, each so many rows of each sequence, and holds the values of `outs` and the final states to the
    /// reference's in f64: off by no more than `tolerance` times the largest value of the buffer or array.
    #[track_caller]
    pub fn check(&self, outs: &[BufferId], passes: &[&[usize]], tolerance: f64) -> Dispatches {
        let mut found = None;
        for &out in outs {
            let (spec, plan) = self.model(out);
            let weights = || self.loaded.iter().cloned().collect();
            let options = RunOptions {
                exact: self.exact,
                block_rows: passes.iter().map(|pass| pass.iter().sum()).max().unwrap_or(0),
                block_outputs: passes.iter().map(|pass| pass.iter().sum()).max().unwrap_or(0),
                max_positions: passes.iter().flat_map(|pass| pass.iter()).sum(),
                ..RunOptions::default()
            };
            let mut reference = Reference::<f64>::with_plan(spec.clone(), plan.clone(), weights());
            let made = GpuExecutor::with_plan(self.gpu.clone(), &spec, plan.clone(), weights(), &options);
            let mut tested = pollster::block_on(made).unwrap_or_else(|e| panic!("{e}"));
            let (wanted, wanted_states) = self.run(&mut reference, passes);
            let (got, got_states) = self.run(&mut tested, passes);
            for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                near(&format!("pass {i} {:?}", passes[i]), "", got, wanted, tolerance);
            }
            for (s, (got, wanted)) in got_states.iter().zip(&wanted_states).enumerate() {
                assert_eq!(got.positions, wanted.positions, "sequence {s}");
                got.check(&self.slots).unwrap_or_else(|e| panic!("sequence {s}: {e}"));
                let names: Vec<&str> =
                    self.slots.iter().flat_map(|slot| slot.planes(got.positions)).map(|plane| plane.0).collect();
                for ((got, wanted), name) in got.planes.iter().zip(&wanted.planes).zip(names) {
                    let [got, wanted] = [got, wanted].map(|plane| plane.to_f32().expect("numbers"));
                    near(&format!("{name} of sequence {s}"), name, &got, &wanted, tolerance);
                }
            }
            let count = |regime| tested.engine().table(regime).rows().filter(|row| row.layer.is_some()).count();
            found = Some(Dispatches { token: count(Regime::Token), block: count(Regime::Block) });
        }
        found.expect("something to be held to the reference")
    }

    /// The ops, compiled for a plain device with such limits, without one.
    pub fn compiled(
        &self,
        out: BufferId,
        regime: Regime,
        limits: Limits,
        rows: usize,
        positions: usize,
    ) -> Result<Program> {
        let (spec, plan) = self.model(out);
        let target = Target { regime, limits, flavours: Flavours::default(), exact: self.exact };
        let mut needed = Needed::new(&spec, None, limits);
        compile(&spec, &plan, target, rows, positions, &mut needed)
    }

    /// The same for blocks of as many rows as fit, and how many that are.
    pub fn compiled_block(&self, out: BufferId, limits: Limits, rows: usize) -> Result<(Program, usize)> {
        let (spec, plan) = self.model(out);
        let target = Target { regime: Regime::Block, limits, flavours: Flavours::default(), exact: self.exact };
        let mut needed = Needed::new(&spec, None, limits);
        compile_block(&spec, &plan, target, rows, rows, &mut needed)
    }

    /// The ops as a model whose logits are `out`.
    fn model(&self, out: BufferId) -> (ModelSpec, Plan) {
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

    /// The values of every row of each pass, and the states in the end.
    fn run(&self, executor: &mut dyn Executor, passes: &[&[usize]]) -> (Vec<Vec<f32>>, Vec<Snapshot>) {
        let sequences = passes.iter().map(|pass| pass.len()).max().unwrap_or(0);
        let capacity = passes.iter().flat_map(|pass| pass.iter()).sum();
        let mut states: Vec<State> = (0..sequences)
            .map(|_| pollster::block_on(executor.new_state(capacity)).unwrap_or_else(|e| panic!("{e}")))
            .collect();
        let mut values = vec![];
        let mut fed = 0;
        for pass in passes {
            let rows: usize = pass.iter().sum();
            let ids: Vec<u32> = (fed..fed + rows).map(|id| (id % self.tokens) as u32).collect();
            fed += rows;
            let mut at = 0;
            let (mut sequences, mut own) = (vec![], vec![]);
            for (state, &n) in states.iter_mut().zip(*pass) {
                if n > 0 {
                    sequences.push(Sequence { rows: at..at + n });
                    own.push(state);
                }
                at += n;
            }
            let outputs: Vec<usize> = (0..rows).collect();
            let batch = Batch { ids: &ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
            let output = pollster::block_on(executor.forward(&batch, &mut own)).unwrap_or_else(|e| panic!("{e}"));
            values.push(output.values);
        }
        let snapshots =
            states.iter_mut().map(|state| pollster::block_on(state.snapshot()).expect("a snapshot")).collect();
        (values, snapshots)
    }
}

/// No value is further off than `tolerance` times the largest; angles may be a turn apart.
#[track_caller]
fn near(what: &str, name: &str, got: &[f32], wanted: &[f32], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    let largest = wanted.iter().fold(0.0, |a: f64, &b| a.max(f64::from(b).abs()));
    assert!(wanted.is_empty() || largest > 0.0, "{what}: nothing but zeros proves nothing");
    let mut worst = (0.0, 0);
    for (i, (&g, &w)) in got.iter().zip(wanted).enumerate() {
        let mut off = (f64::from(g) - f64::from(w)).abs();
        if name == "angle" {
            off = off.min((std::f64::consts::TAU - off).abs());
        }
        if off.is_nan() || off > worst.0 {
            worst = (off, i);
        }
    }
    let (off, i) = worst;
    assert!(
        off <= tolerance * largest,
        "{what}: value {i} is {}, not {}: off by {:.1e} of the largest",
        got[i],
        wanted[i],
        off / largest
    );
}

/// The rig itself, with ops whose kernels are simple.
mod tests {
    use selkie_model::{
        plan::AttentionOp,
        rope::{Pairing, RopeScaling},
    };

    use super::*;

    #[test]
    fn values_and_caches_are_the_references() {
        let mut rig = Rig::new(1);
        let [q, k, v] = rig.inputs([24, 8, 8]);
        let cache = rig.slot(Slot::KvCache { n_kv_heads: 1, head_dim: 8, v_head_dim: 8, window: None });
        let out = rig.buffer(24);
        let (n_heads, n_kv_heads, head_dim, v_head_dim) = (3, 1, 8, 8);
        let (scale, softcap, window, sinks) = (0.5, None, None, None);
        let op = AttentionOp {
            q,
            k,
            v,
            cache,
            n_heads,
            n_kv_heads,
            head_dim,
            v_head_dim,
            scale,
            softcap,
            window,
            sinks,
            out,
        };
        rig.op(Op::Attention(op));
        let dispatches = rig.check(&[out], &[&[3, 70], &[1, 0], &[0, 1], &[1, 5]], 1e-5);
        assert_eq!(dispatches, Dispatches { token: 2, block: 2 });
    }

    #[test]
    fn angles_of_positions() {
        let mut rig = Rig::new(3);
        let x = rig.input(24);
        let (n_dims, theta, pairing) = (8, 1e4, Pairing::Halves);
        let rope = rig.rope(RopeSpec { n_dims, theta, pairing, scaling: RopeScaling::None, freq_factors: None });
        let out = rig.buffer(24);
        rig.op(Op::Rope { x, rope, head_dim: 12, out });
        rig.check(&[out], &[&[9, 2], &[1, 0]], 1e-5);
    }

    #[test]
    fn products_of_blocks() {
        let mut rig = Rig::new(2);
        let x = rig.input(64);
        let products = [DType::Q8_0, DType::F16].map(|dtype| Product {
            weight: rig.matrix(dtype, &[40, 64]),
            bias: Some(rig.vector(&[40])),
            out: rig.buffer(40),
        });
        rig.op(Op::Linears { x, products: products.to_vec() });
        rig.check(&products.map(|product| product.out), &[&[1], &[33]], 1e-5);
    }

    #[test]
    #[should_panic(expected = "value 3 is 5, not 4")]
    fn what_differs_is_found() {
        near("values", "", &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 4.0], 0.1);
    }

    #[test]
    #[should_panic(expected = "value 1 is NaN")]
    fn what_is_no_number_is_found() {
        near("values", "", &[1.0, f32::NAN], &[1.0, 2.0], 0.1);
    }
}
