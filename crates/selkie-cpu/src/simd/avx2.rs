//! AVX2 with FMA and F16C: eight f32, 32 bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Kernel, Simd, Wide};

/// Witness of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Compiles `kernel` with these features.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Eight rows of eight 32-bit groups, transposed.
///
/// # Safety
/// The processor has AVX2; `dst` is valid for the eight rows of 32 bytes, `stride` apart.
#[inline(always)]
pub(super) unsafe fn interleave(rows: [__m256i; 8], dst: *mut u8, stride: usize) {
    // SAFETY: AVX2 is there and the stores are the caller's.
    unsafe {
        let [a, b, c, d, e, f, g, h] = rows;
        let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        let (ef0, ef1) = (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f));
        let (gh0, gh1) = (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h));
        let quads = [
            (_mm256_unpacklo_epi64(ab0, cd0), _mm256_unpacklo_epi64(ef0, gh0)),
            (_mm256_unpackhi_epi64(ab0, cd0), _mm256_unpackhi_epi64(ef0, gh0)),
            (_mm256_unpacklo_epi64(ab1, cd1), _mm256_unpacklo_epi64(ef1, gh1)),
            (_mm256_unpackhi_epi64(ab1, cd1), _mm256_unpackhi_epi64(ef1, gh1)),
        ];
        for (i, (low, high)) in quads.into_iter().enumerate() {
            _mm256_storeu_si256(dst.add(i * stride).cast(), _mm256_permute2x128_si256::<0x20>(low, high));
            _mm256_storeu_si256(dst.add((i + 4) * stride).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
        }
    }
}

/// Defines the byte operations, which every set with 256-bit integers shares.
macro_rules! bytes_256 {
    () => {
        #[inline(always)]
        fn prefetch(self, p: *const u8) {
            // SAFETY: a prefetch does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        fn f16(self, bits: u16) -> f32 {
            // SAFETY: F16C is there.
            unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits as i32))) }
        }
        #[inline(always)]
        unsafe fn load_b(self, p: *const u8) -> __m256i {
            // SAFETY: the caller's.
            unsafe { _mm256_loadu_si256(p.cast()) }
        }
        #[inline(always)]
        unsafe fn store_b(self, p: *mut u8, x: __m256i) {
            // SAFETY: the caller's.
            unsafe { _mm256_storeu_si256(p.cast(), x) }
        }
        #[inline(always)]
        unsafe fn nibbles(self, p: *const u8) -> __m256i {
            // SAFETY: the caller's pointer; AVX2 is there.
            unsafe {
                let x = _mm_loadu_si128(p.cast());
                let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(x), _mm_srli_epi16::<4>(x));
                _mm256_and_si256(both, _mm256_set1_epi8(15))
            }
        }
        #[inline(always)]
        fn splat_b(self, x: u8) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe { _mm256_set1_epi8(x as i8) }
        }
        #[inline(always)]
        fn and(self, a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe { _mm256_and_si256(a, b) }
        }
        #[inline(always)]
        fn or(self, a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe { _mm256_or_si256(a, b) }
        }
        #[inline(always)]
        fn xor(self, a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe { _mm256_xor_si256(a, b) }
        }
        #[inline(always)]
        fn shr(self, a: __m256i, n: u32) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe {
                let shifted = _mm256_srl_epi16(a, _mm_cvtsi32_si128(n as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi8((0xffu8 >> n) as i8))
            }
        }
        #[inline(always)]
        fn shl(self, a: __m256i, n: u32) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe {
                let shifted = _mm256_sll_epi16(a, _mm_cvtsi32_si128(n as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi8((0xffu8 << n) as i8))
            }
        }
        #[inline(always)]
        fn lookup(self, table: &[u8; 16], index: __m256i) -> __m256i {
            // SAFETY: AVX2 is there, and the table has the sixteen bytes.
            unsafe {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                _mm256_shuffle_epi8(table, index)
            }
        }
        #[inline(always)]
        fn spread(self, bits: u32) -> __m256i {
            // SAFETY: AVX2 is there.
            unsafe {
                let bytes = _mm256_shuffle_epi8(
                    _mm256_set1_epi32(bits as i32),
                    _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303),
                );
                let bit = _mm256_set1_epi64x(0x8040201008040201u64 as i64);
                _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
            }
        }
        #[inline(always)]
        fn a_zero(self) -> __m256 {
            // SAFETY: AVX is there.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        fn a_splat(self, x: f32) -> __m256 {
            // SAFETY: AVX is there.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        fn a_halves(self, low: f32, high: f32) -> __m256 {
            // SAFETY: AVX is there.
            unsafe { _mm256_set_m128(_mm_set1_ps(high), _mm_set1_ps(low)) }
        }
        #[inline(always)]
        fn a_sum(self, a: __m256) -> f32 {
            // SAFETY: AVX is there.
            unsafe { super::avx2::sum(a) }
        }
    };
}
pub(super) use bytes_256;

/// The sum of eight f32.
///
/// # Safety
/// The processor has AVX.
#[inline(always)]
pub(super) unsafe fn sum(a: __m256) -> f32 {
    // SAFETY: AVX is there.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

// SAFETY of all blocks below: the witness says that AVX2, FMA and F16C are there; pointers are the caller's.
impl Simd for Avx2 {
    const LANES: usize = 8;
    const WIDE: Wide = Wide::Split;
    const TILE: usize = 4;
    const FLOAT_TILE: usize = 6;
    type F = __m256;
    type B = __m256i;
    type A = __m256;
    type P = __m256i;
    type N = __m256i;
    type I = __m256i;

    bytes_256!();

    /// A pair of products is at most `2 * 127 * (2^bits - 1)`, and a narrow sum holds 32767.
    #[inline(always)]
    fn macs(bits: u32) -> usize {
        match bits {
            0..=4 => 8,
            5 => 4,
            6 => 2,
            _ => 1,
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m256) {
        unsafe { _mm256_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m256 {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: __m256) {
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, a: __m256) -> __m256 {
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        unsafe { sum(a) }
    }
    #[inline(always)]
    fn reduce_max(self, a: __m256) -> f32 {
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: __m256) {
        unsafe {
            let whole = _mm256_cvtps_epi32(x);
            let words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
        }
    }

    #[inline(always)]
    fn dot(self, acc: __m256, q: __m256i, a: __m256i, scale: __m256) -> __m256 {
        unsafe {
            let pairs = _mm256_maddubs_epi16(q, a);
            let sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, acc)
        }
    }
    #[inline(always)]
    fn dot_wide(self, acc: __m256, q: __m256i, a: __m256i, scale: __m256) -> __m256 {
        unsafe {
            // |w| is at most 128 (which it is as an unsigned byte) and |a| 127, so that a pair of products fits 16 bits.
            let w = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
            let sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, acc)
        }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: [__m256i; 8], dst: *mut u8, stride: usize) {
        unsafe { interleave(rows, dst, stride) }
    }
    #[inline(always)]
    unsafe fn load_p(self, p: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast_p(self, p: *const i8) -> __m256i {
        unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    fn n_zero(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn mac(self, n: __m256i, w: __m256i, a: __m256i) -> __m256i {
        unsafe { _mm256_add_epi16(n, _mm256_maddubs_epi16(w, a)) }
    }
    #[inline(always)]
    fn i_zero(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn widen(self, n: __m256i) -> __m256i {
        unsafe { _mm256_madd_epi16(n, _mm256_set1_epi16(1)) }
    }
    #[inline(always)]
    fn widen16(self, n: __m256i) -> __m256i {
        unsafe { _mm256_madd_epi16(n, _mm256_set1_epi16(16)) }
    }
    #[inline(always)]
    fn i_add(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(a) }
    }
}
