//! Operations on rows, on every instruction set, against f64.

mod common;

use common::{Random, assert_close, pools};
use selkie_cpu::{
    Activation, Pairing, Pool, activate, add_scaled, clamped_swiglu, gate, join_heads, multiply, rank_expand,
    rank_reduce, rms_norm, rope, scale, scale_rows, softmax,
};

/// erf by its series, or the continued fraction of erfc where that converges better.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= -z * z / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..200).rev().fold(z, |f, n| z + n as f64 / 2.0 / f);
        1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

fn function(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Activation::GeluErf => x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0).powi(2),
        Activation::Identity => x,
        _ => unreachable!("all kinds are listed"),
    }
}

const KINDS: [Activation; 7] = [
    Activation::Silu,
    Activation::GeluTanh,
    Activation::GeluErf,
    Activation::Sigmoid,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::Identity,
];

#[test]
fn activations() {
    for pool in pools() {
        for kind in KINDS {
            // Not whole vectors, and more than one task.
            let x: Vec<f32> = (0..40_003).map(|i| (i - 20_000) as f32 * 1e-3).collect();
            let wanted: Vec<f64> = x.iter().map(|&x| function(kind, x as f64)).collect();
            let mut out = x.clone();
            activate(&pool, kind, &mut out);
            let what = format!("{kind:?} on {}", pool.isa());
            assert_close(&what, &out, &wanted, |i| 1e-6 * wanted[i].abs() + 3e-7 * (x[i] as f64).abs().min(1.0));
            let up: Vec<f32> = x.iter().rev().map(|x| x * 0.1).collect();
            let mut gated = x.clone();
            gate(&pool, kind, &mut gated, &up).unwrap();
            for ((g, o), u) in gated.iter().zip(&out).zip(&up) {
                assert!((g - o * u).abs() <= 1e-6 * g.abs(), "{what}");
            }
            let mut odd = [f32::NAN, 1e30, -1e30, 0.0];
            activate(&pool, kind, &mut odd);
            assert!(odd[1] == 1.0 || odd[1] >= 1e30, "{what}: {odd:?}");
            let low = if kind == Activation::Identity { -1e30 } else { 0.0 };
            assert!(odd[2] == low, "{what}: {odd:?}");
            assert!(odd[0].is_nan(), "{what}: {odd:?}");
        }
        assert!(gate(&pool, Activation::Silu, &mut [0.0; 3], &[0.0; 2]).is_err());
    }
}

#[test]
fn cut_gates() {
    let (alpha, limit) = (1.702f32, 7.0f32);
    for pool in pools() {
        // Both beyond the limits at their ends.
        let x: Vec<f32> = (0..40_003).map(|i| (i - 20_000) as f32 * 5e-4).collect();
        let up: Vec<f32> = x.iter().rev().copied().collect();
        let wanted: Vec<f64> = x
            .iter()
            .zip(&up)
            .map(|(&g, &u)| {
                let (g, u) = (f64::from(g.min(limit)), f64::from(u.clamp(-limit, limit)));
                g / (1.0 + (-f64::from(alpha) * g).exp()) * (u + 1.0)
            })
            .collect();
        let mut out = x.clone();
        clamped_swiglu(&pool, alpha, limit, &mut out, &up).unwrap();
        let bound = |i: usize| 2e-6 * wanted[i].abs() + 1e-6;
        assert_close(&format!("cut gates on {}", pool.isa()), &out, &wanted, bound);
        let mut odd = [f32::NAN, 1e30, -1e30, 1.0];
        clamped_swiglu(&pool, alpha, limit, &mut odd, &[1.0, 1.0, 1.0, f32::NAN]).unwrap();
        assert!(odd[0].is_nan() && odd[1] > 13.9 && odd[1] < 14.1 && odd[2] == 0.0 && odd[3].is_nan(), "{odd:?}");
        assert!(clamped_swiglu(&pool, alpha, limit, &mut [0.0; 3], &[0.0; 2]).is_err());
    }
}

#[test]
fn sums_and_products() {
    for pool in pools() {
        let mut random = Random::new(1);
        let (x, y) = (random.values(1003), random.values(1003));
        let pairs = || x.iter().zip(&y).map(|(&x, &y)| (x as f64, y as f64));
        let mut out = x.clone();
        add_scaled(&pool, &mut out, &y, 0.3).unwrap();
        let wanted: Vec<f64> = pairs().map(|(x, y)| x + 0.3f32 as f64 * y).collect();
        assert_close("add_scaled", &out, &wanted, |_| 2e-7);
        let mut out = x.clone();
        multiply(&pool, &mut out, &y).unwrap();
        let wanted: Vec<f64> = pairs().map(|(x, y)| x * y).collect();
        assert_close("multiply", &out, &wanted, |_| 1e-7);
        let mut out = x.clone();
        scale(&pool, &mut out, -2.0);
        assert!(out.iter().zip(&x).all(|(o, x)| *o == -2.0 * x));
        assert!(add_scaled(&pool, &mut out, &y[1..], 1.0).is_err());
        assert!(multiply(&pool, &mut out, &y[1..]).is_err());
    }
}

#[test]
fn norms() {
    for pool in pools() {
        let mut random = Random::new(2);
        for (rows, columns, group, weights) in
            [(1, 576, 576, 576), (5, 20, 20, 20), (3, 576, 64, 64), (3, 576, 64, 576), (2, 30, 15, 0), (0, 8, 8, 8)]
        {
            let x = random.values(rows * columns);
            let weight = random.values(weights);
            let mut out = vec![0.0; x.len()];
            let given = (weights > 0).then_some(&weight[..]);
            rms_norm(&pool, &x, given, columns, group, 1e-5, &mut out).unwrap();
            let wanted: Vec<f64> = x
                .chunks_exact(group)
                .flat_map(|x| {
                    let mean = x.iter().map(|&x| (x as f64).powi(2)).sum::<f64>() / group as f64;
                    x.iter().map(move |&x| x as f64 / (mean + 1e-5).sqrt())
                })
                .enumerate()
                .map(|(i, x)| if weights > 0 { x * weight[i % columns % weights] as f64 } else { x })
                .collect();
            assert_close(&format!("norm of {columns} on {}", pool.isa()), &out, &wanted, |_| 2e-6);
        }
        assert!(rms_norm(&pool, &[0.0; 8], None, 8, 3, 1e-5, &mut [0.0; 8]).is_err());
        assert!(rms_norm(&pool, &[0.0; 8], None, 8, 0, 1e-5, &mut [0.0; 8]).is_err());
        assert!(rms_norm(&pool, &[0.0; 8], Some(&[0.0; 3]), 8, 8, 1e-5, &mut [0.0; 8]).is_err());
        assert!(rms_norm(&pool, &[0.0; 8], None, 8, 8, 1e-5, &mut [0.0; 7]).is_err());
    }
}

#[test]
fn softmaxes() {
    for pool in pools() {
        let mut random = Random::new(3);
        for columns in [1, 7, 1000] {
            let x: Vec<f32> = random.values(3 * columns).iter().map(|x| x * 50.0).collect();
            let mut out = x.clone();
            softmax(&pool, &mut out, columns).unwrap();
            let wanted: Vec<f64> = x
                .chunks_exact(columns)
                .flat_map(|x| {
                    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
                    let sum: f64 = x.iter().map(|&x| (x as f64 - largest).exp()).sum();
                    x.iter().map(move |&x| (x as f64 - largest).exp() / sum)
                })
                .collect();
            assert_close("softmax", &out, &wanted, |i| 1e-5 * wanted[i] + 1e-30);
        }
        let mut masked = [1.0, f32::NEG_INFINITY, 1.0];
        softmax(&pool, &mut masked, 3).unwrap();
        assert_eq!(masked, [0.5, 0.0, 0.5]);
        assert!(softmax(&pool, &mut [0.0; 5], 2).is_err());
    }
}

#[test]
fn rotations() {
    for pool in pools() {
        for (heads, head_dim, pairs) in [(3, 64, 32), (2, 20, 5), (1, 8, 0)] {
            for pairing in [Pairing::Interleaved, Pairing::Halves] {
                let rows = 4;
                let mut random = Random::new(4);
                let x = random.values(rows * heads * head_dim);
                let angles = random.values(rows * pairs);
                let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
                let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
                let mut out = x.clone();
                rope(&pool, &mut out, heads, head_dim, &cos, &sin, pairing).unwrap();
                let mut wanted: Vec<f64> = x.iter().map(|&x| x as f64).collect();
                for (row, row_values) in wanted.chunks_exact_mut(heads * head_dim).enumerate() {
                    for head in row_values.chunks_exact_mut(head_dim) {
                        for i in 0..pairs {
                            let (c, s) = (cos[row * pairs + i] as f64, sin[row * pairs + i] as f64);
                            let (a, b) = match pairing {
                                Pairing::Interleaved => (2 * i, 2 * i + 1),
                                Pairing::Halves => (i, i + pairs),
                            };
                            (head[a], head[b]) = (head[a] * c - head[b] * s, head[a] * s + head[b] * c);
                        }
                    }
                }
                assert_close(&format!("{pairing:?} on {}", pool.isa()), &out, &wanted, |_| 3e-7);
            }
        }
    }
    let pool = Pool::new(1);
    assert!(rope(&pool, &mut [0.0; 8], 1, 8, &[0.0; 5], &[0.0; 5], Pairing::Halves).is_err());
    assert!(rope(&pool, &mut [0.0; 8], 1, 8, &[0.0; 4], &[0.0; 3], Pairing::Halves).is_err());
    assert!(rope(&pool, &mut [0.0; 9], 1, 8, &[0.0; 4], &[0.0; 4], Pairing::Halves).is_err());
}

#[test]
fn heads_and_ranks() {
    for pool in pools() {
        let mut random = Random::new(5);
        let (rows, heads, rank, dim) = (300, 3, 4, 21);
        let (a, b) = (random.values(rows * heads * dim), random.values(rows * heads * 5));
        let mut out = vec![f32::NAN; a.len() + b.len()];
        join_heads(&pool, &a, &b, dim, 5, &mut out).unwrap();
        for ((out, a), b) in out.chunks(dim + 5).zip(a.chunks(dim)).zip(b.chunks(5)) {
            assert_eq!(out, [a, b].concat());
        }

        let weight = random.values(heads * rank * dim);
        let mut many = vec![f32::NAN; a.len() * rank];
        rank_expand(&pool, &a, &weight, heads, dim, &mut many).unwrap();
        let at = |t: usize, h: usize, r: usize, i: usize| ((t * heads + h) * rank + r) * dim + i;
        let mut few = vec![f32::NAN; a.len()];
        rank_reduce(&pool, &many, &weight, heads, dim, &mut few).unwrap();
        let mut wanted = vec![0.0; a.len()];
        for (i, &x) in a.iter().enumerate() {
            let (t, h, i) = (i / dim / heads, i / dim % heads, i % dim);
            for r in 0..rank {
                let weight = weight[(h * rank + r) * dim + i];
                assert_eq!(many[at(t, h, r, i)], x * weight);
                wanted[(t * heads + h) * dim + i] += weight as f64 * many[at(t, h, r, i)] as f64;
            }
        }
        assert_close("rank_reduce", &few, &wanted, |_| 1e-6);

        let gates: Vec<f32> = random.values(rows).iter().map(|g| 5.0 * g).collect();
        let mut scaled = a.clone();
        scale_rows(&pool, &mut scaled, &gates, heads * dim).unwrap();
        let wanted: Vec<f64> =
            a.iter().enumerate().map(|(i, &x)| x as f64 / (1.0 + (-gates[i / heads / dim] as f64).exp())).collect();
        assert_close("scale_rows", &scaled, &wanted, |_| 3e-7);
    }
    let pool = Pool::new(1);
    assert!(join_heads(&pool, &[0.0; 4], &[0.0; 4], 2, 1, &mut [0.0; 6]).is_err());
    assert!(join_heads(&pool, &[0.0; 4], &[0.0; 2], 2, 1, &mut [0.0; 5]).is_err());
    assert!(join_heads(&pool, &[0.0; 4], &[], 2, 0, &mut [0.0; 4]).is_err());
    assert!(scale_rows(&pool, &mut [0.0; 4], &[0.0; 3], 2).is_err());
    assert!(scale_rows(&pool, &mut [0.0; 5], &[0.0; 2], 2).is_err());
    assert!(scale_rows(&pool, &mut [], &[], 0).is_err());
    assert!(rank_expand(&pool, &[0.0; 4], &[0.0; 6], 1, 2, &mut [0.0; 11]).is_err());
    assert!(rank_expand(&pool, &[0.0; 4], &[0.0; 5], 1, 2, &mut [0.0; 8]).is_err());
    assert!(rank_reduce(&pool, &[0.0; 8], &[0.0; 4], 0, 2, &mut [0.0; 4]).is_err());
    assert!(rank_reduce(&pool, &[0.0; 8], &[0.0; 4], 1, 2, &mut [0.0; 5]).is_err());
}
