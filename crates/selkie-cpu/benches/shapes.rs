//! Products of a small llama's shapes with one row and with many, on one thread: `cargo bench -p selkie-cpu --bench shapes`,
//! natively and, with the runner of `test-wasm.sh`, in WebAssembly. A line a shape: GB of weights a second for one row,
//! 10^9 operations (two per weight and row) a second for 128.

use std::time::{Duration, Instant};

use bytes::Bytes;
use selkie_cpu::{Activations, Matrix, Pool, Product, Q8, matmul};
use selkie_formats::DType;

/// How long each is repeated; the best of the repetitions counts.
const TIME: Duration = Duration::from_millis(300);

fn main() {
    let pool = Pool::new(1);
    println!("{pool:?}");
    for name in ["q8_0", "q4_1", "q4_k", "f16"] {
        let dtype = DType::from_name(name).unwrap();
        for (outputs, inputs) in [(1536, 576), (576, 1536), (49152, 576), (2048, 2048)] {
            let Some(row_bytes) = dtype.row_bytes(inputs) else { continue };
            // Any bytes below 0x3c are small finite numbers in every encoding.
            let bytes: Bytes =
                (0..outputs * row_bytes).map(|i| ((i as u64 * 0x9e37_79b9) >> 13) as u8 % 0x3c).collect();
            let weight = Matrix::new(inputs, [(dtype, bytes)]).unwrap();
            let [one, many] = [1, 128].map(|rows| seconds(&pool, &weight, rows));
            let operations = (2 * 128 * outputs * inputs) as f64;
            println!(
                "{name:5} {outputs:5} x {inputs:4}  {:6.2} GB/s  {:6.1} GOPS",
                weight.bytes() as f64 / one / 1e9,
                operations / many / 1e9
            );
        }
    }
}

/// The least that a product with `rows` rows took.
fn seconds(pool: &Pool, weight: &Matrix, rows: usize) -> f64 {
    let x: Vec<f32> = (0..rows * weight.inputs()).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut out = vec![0.0; rows * weight.outputs()];
    let mut q8 = Q8::new();
    let (started, mut least) = (Instant::now(), f64::INFINITY);
    while started.elapsed() < TIME {
        let run = Instant::now();
        let input = Activations::fast(pool, &x, weight.inputs(), &mut q8).unwrap();
        matmul(pool, &input, &mut [Product::new(weight, &mut out)]).unwrap();
        least = least.min(run.elapsed().as_secs_f64());
    }
    least
}
