//! Products of every format, on every instruction set, against f64 over the decoders' specification.

mod common;

use bytes::Bytes;
use common::{Random, assert_close, decoded, pools, weights};
use selkie_cpu::{Activation, Activations, Error, Isa, Matrix, Pool, Product, Q8, matmul, matmul_gated};
use selkie_formats::DType;

const INTEGER: [DType; 13] = [
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];
const FLOAT: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const DECODED: [DType; 4] = [DType::IQ2_XXS, DType::IQ3_S, DType::IQ1_S, DType::TQ2_0];

/// What the eight-bit twin of `x` stands for, computed the plain way.
fn through_q8(x: &[f32]) -> Vec<f32> {
    let group = |x: &[f32]| {
        let largest = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        x.iter().map(|v| (v * inverse).round_ties_even() * (largest / 127.0)).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(group).collect()
}

/// `x W^T` in f64, and for each value a bound on what f32 sums in any order may lose: a few units of the largest
/// partial sum. Offsets are summed apart, so that terms may be twice the largest weight.
fn product(x: &[f32], w: &[f32], columns: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut bounds) = (vec![], vec![]);
    for x in x.chunks_exact(columns) {
        for w in w.chunks_exact(columns) {
            out.push(x.iter().zip(w).map(|(&x, &w)| x as f64 * w as f64).sum());
            let largest = w.iter().fold(0f32, |m, v| m.max(v.abs())) as f64;
            bounds.push(2e-6 * largest * x.iter().map(|x| x.abs() as f64).sum::<f64>() + 1e-30);
        }
    }
    (out, bounds)
}

struct Case {
    rows: usize,
    outputs: usize,
    columns: usize,
}

fn run_case(pool: &Pool, dtype: DType, case: &Case, fast: bool) {
    let &Case { rows, outputs, columns } = case;
    let mut random = Random::new((rows * 1000 + outputs) as u64);
    let what = format!("{dtype} {rows}x{outputs}x{columns} on {} {}", pool.isa(), if fast { "fast" } else { "exact" });
    let bytes = weights(&mut random, dtype, outputs * columns);
    let w = decoded(dtype, &bytes, outputs * columns);
    let matrix = Matrix::new(columns, [(dtype, bytes)]).unwrap();
    assert_eq!((matrix.outputs(), matrix.inputs()), (outputs, columns));
    let x = random.values(rows * columns);
    let mut buffer = Q8::new();
    let input = if fast {
        Activations::fast(pool, &x, columns, &mut buffer).unwrap()
    } else {
        Activations::exact(&x, columns).unwrap()
    };
    let in_integers = fast && INTEGER.contains(&dtype);
    let seen = if in_integers { through_q8(&x) } else { x.clone() };
    let (wanted, bounds) = product(&seen, &w, columns);
    let mut out = vec![f32::NAN; rows * outputs];
    matmul(pool, &input, &mut [Product::new(&matrix, &mut out)]).unwrap();
    assert_close(&what, &out, &wanted, |i| bounds[i]);

    // With a bias, added to what is there.
    let bias = random.values(outputs);
    let before = random.values(rows * outputs);
    let mut out = before.clone();
    matmul(pool, &input, &mut [Product::new(&matrix, &mut out).with_bias(&bias).added()]).unwrap();
    let wanted: Vec<f64> =
        wanted.iter().enumerate().map(|(i, w)| w + bias[i % outputs] as f64 + before[i] as f64).collect();
    assert_close(&format!("{what}, added"), &out, &wanted, |i| bounds[i] + 1e-6);
}

#[test]
fn every_format_in_every_mode() {
    for pool in pools() {
        for dtype in INTEGER.into_iter().chain(FLOAT).chain(DECODED) {
            let block = dtype.block_len().max(32);
            for (rows, outputs, columns) in [
                (1, 1, block),
                (1, 64, 3 * block),
                (2, 33, 2 * block),
                (3, 7, block),
                (4, 19, 2 * block),
                (7, 37, 2 * block),
                (13, 32, 3 * block),
                (23, 5, block),
                (0, 8, block),
            ] {
                for fast in [true, false] {
                    run_case(&pool, dtype, &Case { rows, outputs, columns }, fast);
                }
            }
        }
    }
}

/// Rows longer than what panels and dot products take at once.
#[test]
fn long_rows() {
    for pool in pools() {
        for dtype in [DType::Q4_1, DType::Q8_0, DType::Q6_K, DType::Q4_K, DType::F16, DType::IQ3_S] {
            for rows in [1, 2, 9] {
                for fast in [true, false] {
                    run_case(&pool, dtype, &Case { rows, outputs: 18, columns: 2304 }, fast);
                }
            }
        }
    }
}

#[test]
fn float_rows_of_any_length() {
    for pool in pools() {
        for dtype in FLOAT {
            for columns in [1, 5, 31, 33, 100, 257, 300] {
                for rows in [1, 3, 11] {
                    run_case(&pool, dtype, &Case { rows, outputs: 21, columns }, true);
                }
            }
        }
    }
}

/// The largest quants of both signs against the largest activations: nothing saturates.
#[test]
fn extremes_do_not_saturate() {
    for pool in pools() {
        for dtype in INTEGER {
            let (outputs, columns) = (32, 512);
            for fill in [0x00, 0xff, 0x80, 0x7f, 0x88] {
                let mut bytes = weights(&mut Random::new(9), dtype, outputs * columns).to_vec();
                for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
                    let keep: &[usize] = match dtype {
                        DType::Q2_K => &[80, 81, 82, 83],
                        DType::Q3_K => &[108, 109],
                        DType::Q6_K => &[208, 209],
                        DType::MXFP4 => &[0],
                        _ => &[0, 1, 2, 3],
                    };
                    for (i, byte) in block.iter_mut().enumerate() {
                        if !keep.contains(&i) {
                            *byte = fill;
                        }
                    }
                }
                let w = decoded(dtype, &bytes, outputs * columns);
                let matrix = Matrix::new(columns, [(dtype, Bytes::from(bytes))]).unwrap();
                for rows in [1, 2, 8] {
                    for sign in [1.0, -1.0] {
                        let x = vec![sign; rows * columns];
                        let (wanted, bounds) = product(&x, &w, columns);
                        let mut buffer = Q8::new();
                        let input = Activations::fast(&pool, &x, columns, &mut buffer).unwrap();
                        let mut out = vec![0.0; rows * outputs];
                        matmul(&pool, &input, &mut [Product::new(&matrix, &mut out)]).unwrap();
                        let what = format!("{dtype} filled with {fill:#x}, {rows} rows of {sign} on {}", pool.isa());
                        assert_close(&what, &out, &wanted, |i| bounds[i]);
                    }
                }
            }
        }
    }
}

#[test]
fn several_products_of_several_parts() {
    let mut random = Random::new(3);
    for pool in pools() {
        for rows in [1, 6] {
            let columns = 512;
            let x = random.values(rows * columns);
            let mut parts = |types: &[(DType, usize)]| {
                let parts: Vec<_> = types
                    .iter()
                    .map(|&(dtype, outputs)| (dtype, weights(&mut random, dtype, outputs * columns)))
                    .collect();
                let w: Vec<f32> = parts
                    .iter()
                    .zip(types)
                    .flat_map(|((dtype, bytes), (_, outputs))| decoded(*dtype, bytes, outputs * columns))
                    .collect();
                (Matrix::new(columns, parts).unwrap(), w)
            };
            let (a, a_values) = parts(&[(DType::F16, 9), (DType::F32, 70), (DType::BF16, 1)]);
            let (b, b_values) = parts(&[(DType::IQ2_XXS, 5)]);
            let (empty, _) = parts(&[]);
            let (mut out_a, mut out_b) = (vec![0.0; rows * 80], vec![0.0; rows * 5]);
            let input = Activations::exact(&x, columns).unwrap();
            let mut products =
                [Product::new(&a, &mut out_a), Product::new(&empty, &mut []), Product::new(&b, &mut out_b)];
            matmul(&pool, &input, &mut products).unwrap();
            for (out, w) in [(out_a, a_values), (out_b, b_values)] {
                let (wanted, bounds) = product(&x, &w, columns);
                assert_close(&format!("parts on {}", pool.isa()), &out, &wanted, |i| bounds[i]);
            }
        }
    }
}

#[test]
fn gated_product_is_gate_times_up() {
    let (columns, outputs) = (256, 75);
    let mut random = Random::new(4);
    for pool in pools() {
        for dtype in [DType::Q4_1, DType::F16] {
            for rows in [1, 3, 10] {
                let matrix = |random: &mut Random, cut: usize| {
                    let bytes = weights(random, dtype, outputs * columns);
                    let cut = cut * dtype.row_bytes(columns).unwrap();
                    let parts = [bytes.slice(..cut), bytes.slice(cut..)].map(|bytes| (dtype, bytes));
                    Matrix::new(columns, parts.into_iter().filter(|(_, bytes)| !bytes.is_empty())).unwrap()
                };
                let x = random.values(rows * columns);
                let mut buffer = Q8::new();
                let input = Activations::fast(&pool, &x, columns, &mut buffer).unwrap();
                for cut in [0, 20] {
                    let (gate, up) = (matrix(&mut random, cut), matrix(&mut random, 0));
                    let (mut gates, mut ups) = (vec![0.0; rows * outputs], vec![0.0; rows * outputs]);
                    let products = &mut [Product::new(&gate, &mut gates), Product::new(&up, &mut ups)];
                    matmul(&pool, &input, products).unwrap();
                    let mut out = vec![0.0; rows * outputs];
                    matmul_gated(&pool, &input, Activation::Silu, &gate, &up, &mut out).unwrap();
                    let silu = |x: f64| x / (1.0 + (-x).exp());
                    let wanted: Vec<f64> = gates.iter().zip(&ups).map(|(&g, &u)| silu(g as f64) * u as f64).collect();
                    let bound = |i: usize| 1e-6 * wanted[i].abs() + 1e-7;
                    assert_close(&format!("{dtype} {rows} rows on {}", pool.isa()), &out, &wanted, bound);
                }
            }
        }
    }
}

#[test]
fn rows_decode_as_specified() {
    for dtype in INTEGER.into_iter().chain(FLOAT).chain(DECODED) {
        let (columns, outputs) = (512, 5);
        let bytes = weights(&mut Random::new(5), dtype, outputs * columns);
        let wanted = decoded(dtype, &bytes, outputs * columns);
        let cut = 2 * dtype.row_bytes(columns).unwrap();
        let matrix = Matrix::new(columns, [(dtype, bytes.slice(..cut)), (dtype, bytes.slice(cut..))]).unwrap();
        for &isa in Isa::available() {
            for (row, wanted) in wanted.chunks_exact(columns).enumerate() {
                let mut out = vec![0.0; columns];
                matrix.row(isa, row, &mut out).unwrap();
                assert_eq!(out, wanted, "{dtype}, row {row} on {isa}");
            }
            assert!(matrix.row(isa, outputs, &mut vec![0.0; columns]).is_err());
        }
    }
}

#[test]
fn what_is_not_a_number_stays_visible() {
    for pool in pools() {
        for dtype in [DType::Q4_1, DType::Q4_0, DType::Q8_0, DType::F16] {
            for rows in [1, 5] {
                for bad in [f32::NAN, f32::INFINITY] {
                    let bytes = weights(&mut Random::new(6), dtype, 8 * 64);
                    let matrix = Matrix::new(64, [(dtype, bytes)]).unwrap();
                    let mut x = vec![0.5; rows * 64];
                    x[40] = bad;
                    let mut buffer = Q8::new();
                    let input = Activations::fast(&pool, &x, 64, &mut buffer).unwrap();
                    let mut out = vec![0.0; rows * 8];
                    matmul(&pool, &input, &mut [Product::new(&matrix, &mut out)]).unwrap();
                    assert!(out[..8].iter().all(|v| !v.is_finite()), "{dtype} on {}: {out:?}", pool.isa());
                    assert!(out[8..].iter().all(|v| v.is_finite()), "{dtype} on {}: {out:?}", pool.isa());
                }
            }
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let pool = Pool::new(1);
    assert_eq!(
        Matrix::new(40, [(DType::Q4_0, Bytes::new())]).unwrap_err(),
        Error::Row { columns: 40, dtype: DType::Q4_0 }
    );
    assert!(Matrix::new(32, [(DType::Q4_0, Bytes::from_static(&[0; 19]))]).is_err());
    assert!(Matrix::new(1, [(DType::I32, Bytes::from_static(&[0; 4]))]).is_err());
    let matrix = Matrix::new(32, [(DType::Q4_0, Bytes::from(vec![0; 36]))]).unwrap();
    assert!(Activations::exact(&[0.0; 33], 32).is_err());
    let x = [0.0; 64];
    let wrong = Activations::exact(&x, 64).unwrap();
    assert!(matmul(&pool, &wrong, &mut [Product::new(&matrix, &mut [0.0; 2])]).is_err());
    let input = Activations::exact(&x, 32).unwrap();
    assert!(matmul(&pool, &input, &mut [Product::new(&matrix, &mut [0.0; 3])]).is_err());
    let mut out = [0.0; 4];
    assert!(matmul(&pool, &input, &mut [Product::new(&matrix, &mut out).with_bias(&[0.0])]).is_err());
    assert!(matmul(&pool, &input, &mut [Product::new(&matrix, &mut out)]).is_ok());
}
