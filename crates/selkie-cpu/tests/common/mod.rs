//! Random operands, the same in every run.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::Bytes;
use half::{bf16, f16};
use selkie_cpu::{Isa, Pool};
use selkie_formats::{DType, quant};

/// A pool of two threads for every instruction set that this machine has.
pub fn pools() -> impl Iterator<Item = Pool> {
    Isa::available().iter().map(|&isa| Pool::with_isa(2, isa))
}

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In -1..1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }
}

/// Where a block holds f16 numbers.
fn f16_fields(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        DType::TQ2_0 => &[64],
        _ => &[0],
    }
}

/// Rows of weights: any bits for quants and inner scales, scales of a usual size.
pub fn weights(random: &mut Random, dtype: DType, values: usize) -> Bytes {
    let plain = |random: &mut Random| random.value() * 0.5;
    match dtype {
        DType::F32 => return (0..values).flat_map(|_| plain(random).to_le_bytes()).collect(),
        DType::F16 => return (0..values).flat_map(|_| f16::from_f32(plain(random)).to_le_bytes()).collect(),
        DType::BF16 => return (0..values).flat_map(|_| bf16::from_f32(plain(random)).to_le_bytes()).collect(),
        _ => (),
    }
    let mut bytes: Vec<u8> = (0..dtype.row_bytes(values).unwrap()).map(|_| random.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        if dtype == DType::MXFP4 {
            block[0] = 118 + block[0] % 12;
            continue;
        }
        for &at in f16_fields(dtype) {
            block[at..at + 2].copy_from_slice(&f16::from_f32(random.value() * 0.05).to_le_bytes());
        }
    }
    bytes.into()
}

/// What the specification says the weights are.
pub fn decoded(dtype: DType, bytes: &[u8], values: usize) -> Vec<f32> {
    let mut out = vec![0.0; values];
    quant::decode(dtype, bytes, &mut out).unwrap();
    out
}

/// Fails where a value is further than `bound` from the wanted one.
#[track_caller]
pub fn assert_close(what: &str, found: &[f32], wanted: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (&f, &w)) in found.iter().zip(wanted).enumerate() {
        assert!((f as f64 - w).abs() <= bound(i), "{what}: value {i} is {f}, {w} wanted, bound {}", bound(i));
    }
}
