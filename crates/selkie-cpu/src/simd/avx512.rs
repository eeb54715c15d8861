//! AVX-512 with VNNI: sixteen f32, 32 bytes of weights, 64 of a panel.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Kernel, Simd, Wide, avx2::bytes_256};

/// Witness of AVX-512 F, BW, DQ, VL and VNNI, and of what AVX2 implies here.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Compiles `kernel` with these features.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL and VNNI, AVX2, FMA and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

// SAFETY of all blocks below: the witness says that all these features are there; pointers are the caller's.
impl Simd for Avx512 {
    const LANES: usize = 16;
    const WIDE: Wide = Wide::Direct;
    const TILE: usize = 6;
    const FLOAT_TILE: usize = 8;
    type F = __m512;
    type B = __m256i;
    type A = __m256;
    type P = __m512i;
    type N = __m512i;
    type I = __m512i;

    bytes_256!();

    /// The products accumulate in 32 bits.
    #[inline(always)]
    fn macs(_bits: u32) -> usize {
        8
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: __m512) {
        unsafe {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<NEAREST>(x))
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, a: __m512) -> __m512 {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: __m512) {
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x))) }
    }

    #[inline(always)]
    fn dot(self, acc: __m256, q: __m256i, a: __m256i, scale: __m256) -> __m256 {
        unsafe {
            let sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, a);
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, acc)
        }
    }
    #[inline(always)]
    fn dot_wide(self, acc: __m256, q: __m256i, a: __m256i, scale: __m256) -> __m256 {
        unsafe {
            let zeros = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(-128), a);
            let sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, a);
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sums, zeros)), scale, acc)
        }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: [__m256i; 8], dst: *mut u8, stride: usize) {
        unsafe { super::avx2::interleave(rows, dst, stride) }
    }
    #[inline(always)]
    unsafe fn load_p(self, p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast_p(self, p: *const i8) -> __m512i {
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    fn n_zero(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    fn mac(self, n: __m512i, w: __m512i, a: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(n, w, a) }
    }
    #[inline(always)]
    fn i_zero(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    fn widen(self, n: __m512i) -> __m512i {
        n
    }
    #[inline(always)]
    fn widen16(self, n: __m512i) -> __m512i {
        unsafe { _mm512_slli_epi32::<4>(n) }
    }
    #[inline(always)]
    fn i_add(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
}
