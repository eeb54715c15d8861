//! A prompt of 32,768 tokens through a Mamba-2 of four layers: in one piece, and token by token.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_model::{
    Batch, Executor, LoadedWeight, LoadedWeights, ModelSpec, Sequence, State, Want, WeightId, Weights,
    spec::{Block, Conv, Layer, Linear, Mamba2, Mixer, Norm, SsdShape},
    weights::{Transform, Weight, f32_tensor},
};

const TOKENS: usize = 32_768;
const D_MODEL: usize = 256;
const VOCAB: usize = 64;
const SHAPE: SsdShape = SsdShape {
    n_heads: 8,
    head_dim: 64,
    n_groups: 1,
    d_state: 64,
    dt_min: 0.0,
    dt_max: f32::INFINITY,
    scale_input: true,
};

/// Weights as they are made up.
struct Maker {
    seed: u64,
    table: Weights,
    loaded: Vec<LoadedWeight>,
}

impl Maker {
    /// Evenly spread between -1 and 1.
    fn next(&mut self) -> f32 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn weight(&mut self, shape: &[usize], value: impl Fn(f32) -> f32) -> WeightId {
        let values = (0..shape.iter().product()).map(|_| value(self.next())).collect();
        let (rows, row_len) = (shape[..shape.len() - 1].iter().product::<usize>(), shape[shape.len() - 1]);
        let name = "made up".to_owned();
        let parts = vec![f32_tensor(values, vec![rows, row_len])];
        self.loaded.push(LoadedWeight { name: name.clone(), shape: shape.to_vec(), parts });
        self.table.push(Weight { name, shape: shape.to_vec(), parts: vec![], transform: Transform::None })
    }

    fn linear(&mut self, out: usize, input: usize) -> Linear {
        let scale = 1.7 / (input as f32).sqrt();
        Linear::new(self.weight(&[out, input], |v| v * scale))
    }

    fn norm(&mut self, width: usize) -> Norm {
        Norm { weight: Some(self.weight(&[width], |v| 1.0 + 0.1 * v)), group: width, eps: 1e-5 }
    }

    fn layer(&mut self) -> Layer {
        let (d_inner, width, heads) = (SHAPE.d_inner(), SHAPE.width(), SHAPE.n_heads);
        let mixer = Mamba2 {
            z: Some(self.linear(d_inner, D_MODEL)),
            z_scale: 1.0,
            xbc: self.linear(width, D_MODEL),
            conv: Conv {
                weight: self.weight(&[width, 4], |v| 0.5 * v),
                bias: Some(self.weight(&[width], |v| 0.1 * v)),
                silu: true,
            },
            dt: self.linear(heads, D_MODEL),
            dt_scale: 1.0,
            // From heads that keep thousands of tokens to heads that forget within a few.
            a: self.weight(&[heads], |v| -(5.0 * v - 2.0).exp()),
            d: self.weight(&[heads], |v| v),
            dt_bias: self.weight(&[heads], |v| v - 4.0),
            shape: SHAPE,
            norm: Some(self.norm(d_inner)),
            norm_before_gate: false,
            out: self.linear(D_MODEL, d_inner),
        };
        let pre_norm = Some(self.norm(D_MODEL));
        let inner = Mixer::Mamba2(Box::new(mixer));
        let block = Block { pre_norm, inner, post_norm: None, residual_scale: 1.0 };
        Layer { shared: None, mixer: Some(block), feed_forward: None }
    }
}

fn model() -> (ModelSpec, LoadedWeights) {
    let mut m = Maker { seed: 7, table: Weights::default(), loaded: vec![] };
    let embedding = m.weight(&[VOCAB, D_MODEL], |v| v);
    let spec = ModelSpec {
        architecture: "made up".into(),
        d_model: D_MODEL,
        vocab_size: VOCAB,
        context: None,
        embedding,
        embedding_scale: 1.0,
        layers: (0..4).map(|_| m.layer()).collect(),
        final_norm: m.norm(D_MODEL),
        head: m.linear(VOCAB, D_MODEL),
        logit_scale: 1.0,
        logit_softcap: None,
        ropes: vec![],
        weights: m.table,
    };
    (spec, m.loaded.into_iter().collect())
}

fn feed(executor: &mut CpuExecutor, state: &mut State, ids: &[u32]) -> Vec<f32> {
    let (sequences, last) = ([Sequence { rows: 0..ids.len() }], [ids.len() - 1]);
    let batch = Batch { ids, sequences: &sequences, outputs: &last, want: Want::Logits };
    pollster::block_on(executor.forward(&batch, &mut [state])).expect("logits").values
}

/// The largest difference, by the size of the largest value.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert!(a.len() == b.len() && a.iter().chain(b).all(|v| v.is_finite()));
    let size = b.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs())) / size
}

#[test]
fn whole_prompt_equals_its_steps() {
    let (spec, weights) = model();
    let options = CpuOptions { threads: Some(2), exact: true };
    let mut executor = CpuExecutor::new(&spec, weights, &options).expect("an executor");
    let ids: Vec<u32> = (0..TOKENS as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) % VOCAB as u32).collect();

    let mut whole = pollster::block_on(executor.new_state(TOKENS)).expect("a state");
    let at_once = feed(&mut executor, &mut whole, &ids);
    let mut steps = pollster::block_on(executor.new_state(TOKENS)).expect("a state");
    let fresh = steps.bytes();
    let mut one_by_one = vec![];
    for id in &ids {
        one_by_one = feed(&mut executor, &mut steps, std::slice::from_ref(id));
    }
    let logits = apart(&at_once, &one_by_one);
    assert!(logits < 1e-3, "logits are {logits} apart");
    let snapshots = [&whole, &steps].map(|state| pollster::block_on(state.snapshot()).expect("a snapshot"));
    for (a, b) in snapshots[0].planes.iter().zip(&snapshots[1].planes) {
        let (a, b) = (a.to_f32().expect("values"), b.to_f32().expect("values"));
        let state = apart(&a, &b);
        assert!(state < 1e-3, "states are {state} apart");
    }
    // What is kept for going back is all that comes on top of the states themselves.
    let most = 16 << 20;
    assert!(steps.bytes() < most && whole.bytes() < most, "{fresh} bytes grew to {}", steps.bytes());
}
