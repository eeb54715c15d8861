//! Block formats: what stored bytes mean as numbers, and the way back.
//!
//! The decoders here are the specification: plain loops, one file per family of formats. Executors have their own
//! decoders for each instruction set and are held to these, bit for bit.

use crate::DType;

mod bits;
mod encode;
mod fp4;
pub mod grids;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k;
mod k_encode;
mod plain;
mod search;
mod simple;
mod ternary;

pub use encode::{can_encode, encode};
pub use k::scale_and_min;
pub use plain::f16_to_f32;

/// Why values could not be decoded or encoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// The bytes are not whole blocks, or not as many as the values need.
    #[error("{bytes} bytes of {dtype} are not {values} values")]
    Length {
        /// The format.
        dtype: DType,
        /// Length of the stored side in bytes.
        bytes: usize,
        /// Length of the other side in values.
        values: usize,
    },
    /// The type holds no weights.
    #[error("{0} is not a type of weights")]
    NotWeights(DType),
    /// Values of the type can be read but not written.
    #[error("encoding to {0} is not supported")]
    NoEncoder(DType),
    /// A value is infinite or not a number.
    #[error("value {index} is {value}, which {dtype} cannot hold")]
    NotFinite {
        /// The format.
        dtype: DType,
        /// Which of the values.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A value is finite, but larger than the format's scales reach.
    #[error("value {index} is {value}, too large for {dtype}")]
    TooLarge {
        /// The format.
        dtype: DType,
        /// Which of the values.
        index: usize,
        /// The value.
        value: f32,
    },
}

/// Decodes whole blocks.
///
/// # Errors
/// Where `blocks` is not exactly `out.len()` values long, or `dtype` holds no weights.
pub fn decode(dtype: DType, blocks: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    if dtype.row_bytes(out.len()) != Some(blocks.len()) {
        return Err(QuantError::Length { dtype, bytes: blocks.len(), values: out.len() });
    }
    match dtype {
        DType::F32 => each(blocks, out, plain::f32),
        DType::F16 => each(blocks, out, plain::f16),
        DType::BF16 => each(blocks, out, plain::bf16),
        DType::F64 => each(blocks, out, plain::f64),
        DType::Q4_0 => each(blocks, out, simple::q4_0),
        DType::Q4_1 => each(blocks, out, simple::q4_1),
        DType::Q5_0 => each(blocks, out, simple::q5_0),
        DType::Q5_1 => each(blocks, out, simple::q5_1),
        DType::Q8_0 => each(blocks, out, simple::q8_0),
        DType::Q2_K => each(blocks, out, k::q2_k),
        DType::Q3_K => each(blocks, out, k::q3_k),
        DType::Q4_K => each(blocks, out, k::q4_k),
        DType::Q5_K => each(blocks, out, k::q5_k),
        DType::Q6_K => each(blocks, out, k::q6_k),
        DType::IQ1_S => each(blocks, out, iq1::iq1_s),
        DType::IQ1_M => each(blocks, out, iq1::iq1_m),
        DType::IQ2_XXS => each(blocks, out, iq2::iq2_xxs),
        DType::IQ2_XS => each(blocks, out, iq2::iq2_xs),
        DType::IQ2_S => each(blocks, out, iq2::iq2_s),
        DType::IQ3_XXS => each(blocks, out, iq3::iq3_xxs),
        DType::IQ3_S => each(blocks, out, iq3::iq3_s),
        DType::IQ4_NL => each(blocks, out, iq4::iq4_nl),
        DType::IQ4_XS => each(blocks, out, iq4::iq4_xs),
        DType::TQ1_0 => each(blocks, out, ternary::tq1_0),
        DType::TQ2_0 => each(blocks, out, ternary::tq2_0),
        DType::MXFP4 => each(blocks, out, fp4::mxfp4),
        DType::NVFP4 => each(blocks, out, fp4::nvfp4),
        DType::Q1_0 => each(blocks, out, bits::q1_0),
        DType::Q2_0 => each(blocks, out, bits::q2_0),
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::BOOL
        | DType::F8_E4M3
        | DType::F8_E5M2
        | DType::F8_E8M0
        | DType::C64 => return Err(QuantError::NotWeights(dtype)),
    }
    Ok(())
}

/// Decodes block after block with `block`.
fn each<const BYTES: usize, const LEN: usize>(
    blocks: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, _) = blocks.as_chunks::<BYTES>();
    let (out, _) = out.as_chunks_mut::<LEN>();
    for (stored, values) in blocks.iter().zip(out) {
        block(stored, values);
    }
}

/// The bytes `AT..AT + LEN` of a block; that they are inside is checked when compiled.
fn field<const AT: usize, const LEN: usize, const BYTES: usize>(block: &[u8; BYTES]) -> &[u8; LEN] {
    const { assert!(AT + LEN <= BYTES) };
    match block[AT..].first_chunk() {
        Some(field) => field,
        None => unreachable!(),
    }
}

/// The half-precision number at byte `AT` of a block.
fn half<const AT: usize, const BYTES: usize>(block: &[u8; BYTES]) -> f32 {
    f16_to_f32(u16::from_le_bytes(*field::<AT, 2, BYTES>(block)))
}

/// `-magnitude` where bit `at` of `signs` is set.
fn signed(magnitude: i8, signs: u8, at: usize) -> f32 {
    let magnitude = f32::from(magnitude);
    if signs >> at & 1 == 1 { -magnitude } else { magnitude }
}
