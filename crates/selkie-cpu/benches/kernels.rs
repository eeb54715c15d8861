//! What the kernels reach: `cargo bench -p selkie-cpu [FILTER]`. Rows of the tables are block formats; throughput is
//! bytes of weights a second for the decode group and operations (two per weight and row) a second for the prefill group.

use std::sync::LazyLock;

use bytes::Bytes;
use divan::{Bencher, counter::BytesCount, counter::ItemsCount};
use selkie_cpu::{
    Activation, Activations, Attention, CacheType, KvCache, Matrix, Pool, Product, Q8, matmul, matmul_gated,
};
use selkie_formats::DType;

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(Pool::default_threads()));

const FORMATS: &[&str] = &[
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "f16",
    "bf16", "f32",
];

fn main() {
    println!("{:?}", *POOL);
    divan::main();
}

fn matrix(dtype: DType, outputs: usize, inputs: usize) -> Matrix {
    // Any bytes below 0x3c are small finite numbers in every encoding.
    let mut x = outputs as u32 | 1;
    let bytes = (0..outputs * dtype.row_bytes(inputs).unwrap()).map(|_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8 % 0x3c
    });
    Matrix::new(inputs, [(dtype, bytes.collect::<Bytes>())]).unwrap()
}

/// The weights of a small llama: 30 layers of width 576 and 1536, grouped heads.
struct Layers {
    qkv: Vec<[Matrix; 3]>,
    out: Vec<Matrix>,
    gate: Vec<[Matrix; 2]>,
    down: Vec<Matrix>,
}

impl Layers {
    fn new(dtype: DType) -> Option<Self> {
        dtype.row_bytes(576)?;
        let repeat = |f: &dyn Fn() -> Matrix| (0..30).map(|_| f()).collect();
        Some(Self {
            qkv: (0..30).map(|_| [576, 192, 192].map(|rows| matrix(dtype, rows, 576))).collect(),
            out: repeat(&|| matrix(dtype, 576, 576)),
            gate: (0..30).map(|_| [(); 2].map(|()| matrix(dtype, 1536, 576))).collect(),
            down: repeat(&|| matrix(dtype, 576, 1536)),
        })
    }

    fn bytes(&self) -> usize {
        let all = self.qkv.iter().flatten().chain(&self.out).chain(self.gate.iter().flatten()).chain(&self.down);
        all.map(Matrix::bytes).sum()
    }

    /// All products of a pass over `rows` tokens.
    fn run(&self, pool: &Pool, rows: usize, fast: bool, buffers: &mut Buffers) {
        let Buffers { q8, x, wide, q, k, v } = buffers;
        for layer in 0..self.out.len() {
            let [wq, wk, wv] = &self.qkv[layer];
            let a = input(pool, fast, &x[..rows * 576], 576, &mut *q8);
            matmul(pool, &a, &mut [Product::new(wq, q), Product::new(wk, k), Product::new(wv, v)]).unwrap();
            let a = input(pool, fast, &q[..], 576, &mut *q8);
            matmul(pool, &a, &mut [Product::new(&self.out[layer], x)]).unwrap();
            let a = input(pool, fast, &x[..], 576, &mut *q8);
            let [gate, up] = &self.gate[layer];
            matmul_gated(pool, &a, Activation::Silu, gate, up, wide).unwrap();
            let a = input(pool, fast, &wide[..], 1536, &mut *q8);
            matmul(pool, &a, &mut [Product::new(&self.down[layer], x)]).unwrap();
            // Values stay in range whatever the weights are.
            x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 7) as f32 * 0.1);
        }
    }
}

fn input<'a>(pool: &Pool, fast: bool, x: &'a [f32], columns: usize, q8: &'a mut Q8) -> Activations<'a> {
    match fast {
        true => Activations::fast(pool, x, columns, q8).unwrap(),
        false => Activations::exact(x, columns).unwrap(),
    }
}

struct Buffers {
    q8: Q8,
    x: Vec<f32>,
    wide: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Buffers {
    fn new(rows: usize) -> Self {
        let some = |columns| vec![0.1; rows * columns];
        Self { q8: Q8::new(), x: some(576), wide: some(1536), q: some(576), k: some(192), v: some(192) }
    }
}

/// All products of one token, the weights larger than the caches; items are layers' passes, i.e. tokens.
#[divan::bench(args = FORMATS, sample_count = 20)]
fn decode(bencher: Bencher, name: &str) {
    let dtype = DType::from_name(name).unwrap();
    let Some(layers) = Layers::new(dtype) else { return };
    let mut buffers = Buffers::new(1);
    bencher
        .counter(BytesCount::new(layers.bytes()))
        .counter(ItemsCount::new(1usize))
        .bench_local(|| layers.run(&POOL, 1, true, &mut buffers));
}

/// The same for 512 tokens; items are tokens.
#[divan::bench(args = FORMATS, sample_count = 3, sample_size = 1)]
fn prefill(bencher: Bencher, name: &str) {
    let dtype = DType::from_name(name).unwrap();
    let Some(layers) = Layers::new(dtype) else { return };
    let mut buffers = Buffers::new(512);
    bencher.counter(ItemsCount::new(512usize)).bench_local(|| layers.run(&POOL, 512, true, &mut buffers));
}

/// A prompt of 28 tokens; items are tokens.
#[divan::bench(args = ["q4_1", "q8_0", "f16"], sample_count = 5, sample_size = 1)]
fn prompt_28(bencher: Bencher, name: &str) {
    let layers = Layers::new(DType::from_name(name).unwrap()).unwrap();
    let mut buffers = Buffers::new(28);
    bencher.counter(ItemsCount::new(28usize)).bench_local(|| layers.run(&POOL, 28, true, &mut buffers));
}

/// The exact mode, 128 tokens; items are tokens.
#[divan::bench(args = ["q4_1", "q8_0", "f16"], sample_count = 3, sample_size = 1)]
fn prefill_exact(bencher: Bencher, name: &str) {
    let layers = Layers::new(DType::from_name(name).unwrap()).unwrap();
    let mut buffers = Buffers::new(128);
    bencher.counter(ItemsCount::new(128usize)).bench_local(|| layers.run(&POOL, 128, false, &mut buffers));
}

/// One large product, 4096 x 4096 (a super-block format fits here), a few rows at a time; items are operations.
#[divan::bench(args = FORMATS, consts = [1, 2, 4, 5, 8, 256], sample_count = 5, sample_size = 2)]
fn square<const ROWS: usize>(bencher: Bencher, name: &str) {
    let weight = matrix(DType::from_name(name).unwrap(), 4096, 4096);
    let x = vec![0.1; ROWS * 4096];
    let mut out = vec![0.0; ROWS * 4096];
    let mut q8 = Q8::new();
    bencher.counter(BytesCount::new(weight.bytes())).counter(ItemsCount::new(2 * 4096 * 4096 * ROWS)).bench_local(
        || {
            let input = Activations::fast(&POOL, &x, 4096, &mut q8).unwrap();
            matmul(&POOL, &input, &mut [Product::new(&weight, &mut out)]).unwrap();
        },
    );
}

/// Attention of a layer with 9 heads of 64 over 3: rows of queries after so many positions; items are rows.
#[divan::bench(args = [(0, 512), (500, 1), (4000, 1)], sample_count = 10)]
fn attention(bencher: Bencher, (past, rows): (usize, usize)) {
    let mut cache = KvCache::new(CacheType::F16, 3, 64, 64, past + rows).unwrap();
    let kv = vec![0.1; (past + rows) * 192];
    cache.append(POOL.isa(), &kv, &kv).unwrap();
    let kind = Attention { heads: 9, scale: 0.125, softcap: None, window: None, sinks: None };
    let (q, mut out) = (vec![0.1; rows * 576], vec![0.0; rows * 576]);
    bencher
        .counter(ItemsCount::new(rows))
        .bench_local(|| selkie_cpu::attention(&POOL, &kind, &q, &cache, past, &mut out).unwrap());
}

/// Handing out a job of nothing: the least that an operation costs.
#[divan::bench(sample_count = 50)]
fn fork_join(bencher: Bencher) {
    bencher.bench_local(|| {
        POOL.run(2, |i| {
            divan::black_box(i);
        });
    });
}

/// What memory gives: summing 256 MiB.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn read_memory(bencher: Bencher) {
    let words = vec![1u64; 32 << 20];
    bencher.counter(BytesCount::new(words.len() * 8)).bench_local(|| {
        POOL.split(words.len(), 1 << 16, |range| {
            divan::black_box(words[range].iter().fold(0, |a, b| a ^ b));
        });
    });
}
