//! Stored weights to f32, for the exact path and for single rows.
#![allow(unsafe_code, clippy::needless_range_loop)]

use selkie_formats::{DType, quant};

use super::formats::{Format, GROUP, Scales, with_format};
use crate::{
    Isa,
    simd::{Kernel, Simd},
};

/// Decodes whole blocks: `bytes` holds exactly `out.len()` values of `dtype`.
pub(crate) fn decode_row(isa: Isa, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    struct Decode<'a>(DType, &'a [u8], &'a mut [f32]);
    impl Kernel for Decode<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            decode(s, self.0, self.1, self.2);
        }
    }
    isa.run(Decode(dtype, bytes, out));
}

/// The same inside of a kernel.
#[inline(always)]
pub(crate) fn decode<S: Simd>(s: S, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F16 => halves::<S, false>(s, bytes, out),
        DType::BF16 => halves::<S, true>(s, bytes, out),
        DType::F32 => {
            for (x, four) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *x = f32::from_le_bytes(*four);
            }
        }
        _ => with_format!(dtype, F => blocks::<S, F>(s, bytes, out), else {
            // Not reached with a type that holds no weights: `Matrix::new` refuses those.
            if quant::decode(dtype, bytes, out).is_err() {
                out.fill(f32::NAN);
            }
        }),
    }
}

#[inline(always)]
fn blocks<S: Simd, F: Format>(s: S, bytes: &[u8], out: &mut [f32]) {
    assert!(out.len() / (GROUP * F::GROUPS) <= bytes.len() / F::BYTES, "bytes of a row");
    let zero = s.splat(F::ZERO as f32);
    let per_scale = if F::HALVES { GROUP / 2 } else { GROUP };
    for (b, out) in out.chunks_exact_mut(GROUP * F::GROUPS).enumerate() {
        // SAFETY: the assertion: there is such a block; the loads below stay within `q`, the stores within `out`.
        unsafe {
            let block = bytes.as_ptr().add(b * F::BYTES);
            let mut scales = Scales::new();
            F::scales(s, block, &mut scales);
            for (g, out) in out.chunks_exact_mut(GROUP).enumerate() {
                let mut q = [0u8; GROUP];
                s.store_b(q.as_mut_ptr(), F::quants(s, block, g));
                for i in (0..GROUP).step_by(S::LANES) {
                    let entry = (GROUP * g + i) / per_scale;
                    let q = s.sub(s.load_u8(q.as_ptr().add(i)), zero);
                    let x = s.mul(q, s.splat(scales.d[entry]));
                    let x = if F::OFFSETS { s.add(x, s.splat(scales.m[entry])) } else { x };
                    s.store(out.as_mut_ptr().add(i), x);
                }
            }
        }
    }
}

#[inline(always)]
fn halves<S: Simd, const BRAIN: bool>(s: S, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(2 * out.len(), bytes.len(), "bytes of a row");
    let p: *const u16 = bytes.as_ptr().cast();
    let whole = out.len() / S::LANES * S::LANES;
    // SAFETY: the assertion: two bytes per value; whole vectors first, then value by value.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            let x = if BRAIN { s.load_bf16(p.add(i)) } else { s.load_f16(p.add(i)) };
            s.store(out.as_mut_ptr().add(i), x);
        }
        for i in whole..out.len() {
            let bits = u16::from_le(p.add(i).read_unaligned());
            out[i] = if BRAIN { f32::from_bits((bits as u32) << 16) } else { s.f16(bits) };
        }
    }
}
