//! NEON with the dot product: four f32, 32 bytes of weights in two registers.
#![allow(unsafe_code)]

use std::arch::{aarch64::*, asm};

use super::{Kernel, Simd, Wide};

/// Witness of NEON and its dot product.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

/// Compiles `kernel` with these features.
///
/// # Safety
/// The processor has NEON and its dot product.
#[target_feature(enable = "neon,dotprod")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

/// `acc` plus products of int8, summed by four.
///
/// # Safety
/// The processor has the dot product.
#[inline(always)]
unsafe fn sdot(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one arithmetic instruction, which the processor has. (The intrinsic is not stable.)
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b, options(pure, nomem, nostack));
    }
    acc
}

// SAFETY of all blocks below: the witness says that NEON and its dot product are there; pointers are the caller's.
impl Simd for Neon {
    const LANES: usize = 4;
    const WIDE: Wide = Wide::Signed;
    const TILE: usize = 4;
    const FLOAT_TILE: usize = 8;
    type F = float32x4_t;
    type B = uint8x16x2_t;
    type A = float32x4x2_t;
    type P = int8x16_t;
    type N = int32x4_t;
    type I = int32x4_t;

    /// The products accumulate in 32 bits.
    #[inline(always)]
    fn macs(_bits: u32) -> usize {
        8
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: float32x4_t) {
        unsafe { vst1q_f32(p, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> float32x4_t {
        unsafe {
            let half = vld1_u16(p);
            let wide: float32x4_t;
            // The type of half floats is not stable, and so the intrinsic is not.
            asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) half, options(pure, nomem, nostack));
            wide
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> float32x4_t {
        unsafe { vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vld1_u16(p)))) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> float32x4_t {
        unsafe {
            let four = vcreate_u8(p.cast::<u32>().read_unaligned() as u64);
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, x: float32x4_t) {
        unsafe {
            let half: uint16x4_t;
            asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) half, in(vreg) x, options(pure, nomem, nostack));
            vst1_u16(p, half);
        }
    }
    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vdivq_f32(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmaxq_f32(a, b) }
    }
    #[inline(always)]
    fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vminq_f32(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: float32x4_t) -> float32x4_t {
        unsafe { vabsq_f32(a) }
    }
    #[inline(always)]
    fn round(self, a: float32x4_t) -> float32x4_t {
        unsafe { vrndnq_f32(a) }
    }
    #[inline(always)]
    fn pow2(self, a: float32x4_t) -> float32x4_t {
        unsafe { vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(a), vdupq_n_s32(127)))) }
    }
    #[inline(always)]
    fn sum(self, a: float32x4_t) -> f32 {
        unsafe { vaddvq_f32(a) }
    }
    #[inline(always)]
    fn reduce_max(self, a: float32x4_t) -> f32 {
        unsafe { vmaxvq_f32(a) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, x: float32x4_t) {
        unsafe {
            let words = vqmovn_s32(vcvtnq_s32_f32(x));
            let bytes = vqmovn_s16(vcombine_s16(words, words));
            p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_s8(bytes)));
        }
    }
    #[inline(always)]
    fn f16(self, bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }

    #[inline(always)]
    unsafe fn load_b(self, p: *const u8) -> uint8x16x2_t {
        unsafe { uint8x16x2_t(vld1q_u8(p), vld1q_u8(p.add(16))) }
    }
    #[inline(always)]
    unsafe fn store_b(self, p: *mut u8, x: uint8x16x2_t) {
        unsafe {
            vst1q_u8(p, x.0);
            vst1q_u8(p.add(16), x.1);
        }
    }
    #[inline(always)]
    unsafe fn nibbles(self, p: *const u8) -> uint8x16x2_t {
        unsafe {
            let x = vld1q_u8(p);
            uint8x16x2_t(vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x))
        }
    }
    #[inline(always)]
    fn splat_b(self, x: u8) -> uint8x16x2_t {
        unsafe { uint8x16x2_t(vdupq_n_u8(x), vdupq_n_u8(x)) }
    }
    #[inline(always)]
    fn and(self, a: uint8x16x2_t, b: uint8x16x2_t) -> uint8x16x2_t {
        unsafe { uint8x16x2_t(vandq_u8(a.0, b.0), vandq_u8(a.1, b.1)) }
    }
    #[inline(always)]
    fn or(self, a: uint8x16x2_t, b: uint8x16x2_t) -> uint8x16x2_t {
        unsafe { uint8x16x2_t(vorrq_u8(a.0, b.0), vorrq_u8(a.1, b.1)) }
    }
    #[inline(always)]
    fn xor(self, a: uint8x16x2_t, b: uint8x16x2_t) -> uint8x16x2_t {
        unsafe { uint8x16x2_t(veorq_u8(a.0, b.0), veorq_u8(a.1, b.1)) }
    }
    #[inline(always)]
    fn shr(self, a: uint8x16x2_t, n: u32) -> uint8x16x2_t {
        unsafe {
            let by = vdupq_n_s8(-(n as i8));
            uint8x16x2_t(vshlq_u8(a.0, by), vshlq_u8(a.1, by))
        }
    }
    #[inline(always)]
    fn shl(self, a: uint8x16x2_t, n: u32) -> uint8x16x2_t {
        unsafe {
            let by = vdupq_n_s8(n as i8);
            uint8x16x2_t(vshlq_u8(a.0, by), vshlq_u8(a.1, by))
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: uint8x16x2_t) -> uint8x16x2_t {
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            uint8x16x2_t(vqtbl1q_u8(table, index.0), vqtbl1q_u8(table, index.1))
        }
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> uint8x16x2_t {
        unsafe {
            let byte = |i: u32| vdup_n_u8((bits >> (8 * i)) as u8);
            let bit = vdupq_n_u64(0x8040_2010_0804_0201);
            let bit = vreinterpretq_u8_u64(bit);
            let low = vtstq_u8(vcombine_u8(byte(0), byte(1)), bit);
            uint8x16x2_t(low, vtstq_u8(vcombine_u8(byte(2), byte(3)), bit))
        }
    }

    #[inline(always)]
    fn a_zero(self) -> float32x4x2_t {
        self.a_splat(0.0)
    }
    #[inline(always)]
    fn a_splat(self, x: f32) -> float32x4x2_t {
        self.a_halves(x, x)
    }
    #[inline(always)]
    fn a_halves(self, low: f32, high: f32) -> float32x4x2_t {
        unsafe { float32x4x2_t(vdupq_n_f32(low), vdupq_n_f32(high)) }
    }
    #[inline(always)]
    fn dot(self, acc: float32x4x2_t, q: uint8x16x2_t, a: uint8x16x2_t, scale: float32x4x2_t) -> float32x4x2_t {
        unsafe {
            let half = |q, a| vcvtq_f32_s32(sdot(vdupq_n_s32(0), vreinterpretq_s8_u8(q), vreinterpretq_s8_u8(a)));
            let low = vfmaq_f32(acc.0, half(q.0, a.0), scale.0);
            float32x4x2_t(low, vfmaq_f32(acc.1, half(q.1, a.1), scale.1))
        }
    }
    #[inline(always)]
    fn dot_wide(self, acc: float32x4x2_t, q: uint8x16x2_t, a: uint8x16x2_t, scale: float32x4x2_t) -> float32x4x2_t {
        // Less 128 is the same bits with the top one flipped, as a signed byte.
        self.dot(acc, self.xor(q, self.splat_b(0x80)), a, scale)
    }
    #[inline(always)]
    fn a_sum(self, a: float32x4x2_t) -> f32 {
        unsafe { vaddvq_f32(vaddq_f32(a.0, a.1)) }
    }

    #[inline(always)]
    unsafe fn interleave(self, rows: [uint8x16x2_t; 8], dst: *mut u8, stride: usize) {
        // Four rows of four 32-bit groups at a time.
        unsafe {
            for four in 0..2 {
                for half in 0..2 {
                    let row = |r: usize| {
                        let row = rows[4 * four + r];
                        vreinterpretq_u32_u8(if half == 0 { row.0 } else { row.1 })
                    };
                    let (a, b) = (vtrnq_u32(row(0), row(1)), vtrnq_u32(row(2), row(3)));
                    let pair = |a: uint32x4_t, b: uint32x4_t| {
                        let (a, b) = (vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b));
                        (vreinterpretq_u8_u64(vtrn1q_u64(a, b)), vreinterpretq_u8_u64(vtrn2q_u64(a, b)))
                    };
                    let ((g0, g2), (g1, g3)) = (pair(a.0, b.0), pair(a.1, b.1));
                    for (g, x) in [g0, g1, g2, g3].into_iter().enumerate() {
                        vst1q_u8(dst.add((4 * half + g) * stride + 16 * four), x);
                    }
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn load_p(self, p: *const u8) -> int8x16_t {
        unsafe { vld1q_s8(p.cast()) }
    }
    #[inline(always)]
    unsafe fn broadcast_p(self, p: *const i8) -> int8x16_t {
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(p.cast::<i32>().read_unaligned())) }
    }
    #[inline(always)]
    fn n_zero(self) -> int32x4_t {
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    fn mac(self, n: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        unsafe { sdot(n, w, a) }
    }
    #[inline(always)]
    fn i_zero(self) -> int32x4_t {
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    fn widen(self, n: int32x4_t) -> int32x4_t {
        n
    }
    #[inline(always)]
    fn widen16(self, n: int32x4_t) -> int32x4_t {
        unsafe { vshlq_n_s32::<4>(n) }
    }
    #[inline(always)]
    fn i_add(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        unsafe { vaddq_s32(a, b) }
    }
    #[inline(always)]
    fn to_f32(self, a: int32x4_t) -> float32x4_t {
        unsafe { vcvtq_f32_s32(a) }
    }
}
