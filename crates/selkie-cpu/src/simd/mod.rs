//! One small vector vocabulary over all instruction sets.
//!
//! A value of a type that implements [`Simd`] is a witness that its instructions may be used: it is made only by
//! [`Isa::run`](crate::Isa::run), after the processor was asked. That is what makes arithmetic through it safe; only
//! memory access is left `unsafe`. Kernels are written once over the trait, and compiled once per instruction set:
//! everything is `inline(always)` into a function that has the target features enabled.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub(crate) mod scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod wasm;

/// Work that is compiled for every instruction set.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// How a set multiplies weights of a full eight bits (stored unsigned, 128 standing for zero) in a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wide {
    /// As they are: the product accumulates in 32 bits.
    #[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "none of its sets does so"))]
    Direct,
    /// As signed bytes, with the top bit flipped.
    Signed,
    /// As two rows of four bits each: their 16-bit sums do not saturate.
    Split,
}

/// Vector operations of one instruction set.
///
/// Types: `F` is [`LANES`](Self::LANES) f32; `B` is 32 bytes, one group of weights of one row; `A` is an f32 accumulator
/// of products of such groups, whose lower and upper lanes belong to the lower and upper sixteen bytes; `P` is `LANES`
/// rows of four bytes each, `N` the narrow sums of their products, `I` the 32-bit ones.
#[allow(clippy::missing_safety_doc, reason = "every memory operation wants its pointer valid for the bytes it names")]
pub(crate) trait Simd: Copy + Send + Sync {
    const LANES: usize;
    /// How panels hold eight-bit weights.
    const WIDE: Wide;
    /// Rows of activations which a tile of an integer product takes at once.
    const TILE: usize;
    /// Rows of weights which dot products of integers take at once, those of floats twice as many: 4, or 2 where the
    /// compiler does not unroll as much.
    const DOTS: usize = 4;
    /// Rows of activations which a tile of an f32 product takes at once.
    const FLOAT_TILE: usize;
    type F: Copy;
    type B: Copy;
    type A: Copy;
    type P: Copy;
    type N: Copy;
    type I: Copy;

    /// How many products of `bits`-bit weights with int8 a narrow sum may take before it is widened.
    fn macs(bits: u32) -> usize;

    /// Whether panels hold weights of `bits` bits as sixteen-bit words, two columns to every four bytes, rather than as
    /// bytes. For sets without products of bytes.
    #[inline(always)]
    fn words(_bits: u32) -> bool {
        false
    }

    /// Asks for the cache line at `p`, which need not be valid.
    fn prefetch(self, p: *const u8);
    fn splat(self, x: f32) -> Self::F;
    unsafe fn load(self, p: *const f32) -> Self::F;
    unsafe fn store(self, p: *mut f32, x: Self::F);
    /// `LANES` IEEE half floats.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// `LANES` halves of f32: the upper 16 bits.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// `LANES` unsigned bytes.
    unsafe fn load_u8(self, p: *const u8) -> Self::F;
    /// Rounds to IEEE half floats, to nearest even.
    unsafe fn store_f16(self, p: *mut u16, x: Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater; `b` where either is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` where either is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest whole number, halves to even.
    fn round(self, a: Self::F) -> Self::F;
    /// 2^a for whole `a` in -127..=128; 0 and infinity at the ends.
    fn pow2(self, a: Self::F) -> Self::F;
    fn sum(self, a: Self::F) -> f32;
    fn reduce_max(self, a: Self::F) -> f32;
    /// Rounds to whole numbers (which fit) and stores `LANES` int8.
    unsafe fn store_i8(self, p: *mut i8, x: Self::F);
    /// One IEEE half float.
    fn f16(self, bits: u16) -> f32;

    unsafe fn load_b(self, p: *const u8) -> Self::B;
    unsafe fn store_b(self, p: *mut u8, x: Self::B);
    /// Sixteen bytes into 32 nibbles: the low ones first.
    unsafe fn nibbles(self, p: *const u8) -> Self::B;
    fn splat_b(self, x: u8) -> Self::B;
    fn and(self, a: Self::B, b: Self::B) -> Self::B;
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    fn xor(self, a: Self::B, b: Self::B) -> Self::B;
    /// Shifts every byte right, zeros come in.
    fn shr(self, a: Self::B, n: u32) -> Self::B;
    /// Shifts every byte left, zeros come in.
    fn shl(self, a: Self::B, n: u32) -> Self::B;
    /// `table[index]` for indices below 16.
    fn lookup(self, table: &[u8; 16], index: Self::B) -> Self::B;
    /// 0xff where the bit is set, else 0.
    fn spread(self, bits: u32) -> Self::B;

    fn a_zero(self) -> Self::A;
    fn a_splat(self, x: f32) -> Self::A;
    /// `low` for the lanes of the lower sixteen bytes, `high` for the others.
    fn a_halves(self, low: f32, high: f32) -> Self::A;
    /// `acc + scale * (products of unsigned q, below 128, and signed a, summed within a lane)`
    fn dot(self, acc: Self::A, q: Self::B, a: Self::B, scale: Self::A) -> Self::A;
    /// The same with `q - 128` for q, any q.
    fn dot_wide(self, acc: Self::A, q: Self::B, a: Self::B, scale: Self::A) -> Self::A;
    fn a_sum(self, a: Self::A) -> f32;

    /// Writes eight groups of rows for a panel: four bytes of row r, group g go to `dst + g * stride + 4 * r`.
    unsafe fn interleave(self, rows: [Self::B; 8], dst: *mut u8, stride: usize);
    unsafe fn load_p(self, p: *const u8) -> Self::P;
    /// Four activations to every lane.
    unsafe fn broadcast_p(self, p: *const i8) -> Self::P;
    fn n_zero(self) -> Self::N;
    /// `n + w * a`, products summed within a lane.
    fn mac(self, n: Self::N, w: Self::P, a: Self::P) -> Self::N;
    fn i_zero(self) -> Self::I;
    fn widen(self, n: Self::N) -> Self::I;
    /// `16 * widen(n)`
    fn widen16(self, n: Self::N) -> Self::I;
    fn i_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn to_f32(self, a: Self::I) -> Self::F;

    /// 32 signed bytes as sixteen-bit words, sixteen and sixteen.
    #[inline(always)]
    fn to_words(self, _b: Self::B) -> [Self::B; 2] {
        unreachable!("a set whose panels hold bytes")
    }
    /// `i + w * a` for words, products summed within a lane.
    #[inline(always)]
    fn mac_words(self, _i: Self::I, _w: Self::P, _a: Self::P) -> Self::I {
        unreachable!("a set whose panels hold bytes")
    }
}
