//! Encoding: the driver, and what the encoders share.

use super::{QuantError, k_encode, plain, simple};
use crate::DType;

/// Encodes whole blocks: to `F32`, `F16`, `BF16`, `Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`, `Q4_K`, `Q5_K` and `Q6_K`.
///
/// The same values give the same bytes on every machine.
///
/// # Errors
/// Where `out` is not exactly as long as the values need, a value is infinite or not a number, a value is too large for the
/// format, or there is no encoder for `dtype`.
pub fn encode(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    if dtype.row_bytes(values.len()) != Some(out.len()) {
        return Err(QuantError::Length { dtype, bytes: out.len(), values: values.len() });
    }
    match dtype {
        DType::F32 => each(dtype, values, out, plain::put_f32),
        DType::F16 => each(dtype, values, out, plain::put_f16),
        DType::BF16 => each(dtype, values, out, plain::put_bf16),
        DType::Q4_0 => each(dtype, values, out, simple::put_q4_0),
        DType::Q4_1 => each(dtype, values, out, simple::put_q4_1),
        DType::Q5_0 => each(dtype, values, out, simple::put_q5_0),
        DType::Q5_1 => each(dtype, values, out, simple::put_q5_1),
        DType::Q8_0 => each(dtype, values, out, simple::put_q8_0),
        DType::Q4_K => each(dtype, values, out, k_encode::q4_k),
        DType::Q5_K => each(dtype, values, out, k_encode::q5_k),
        DType::Q6_K => each(dtype, values, out, k_encode::q6_k),
        _ => Err(QuantError::NoEncoder(dtype)),
    }
}

/// Whether [`encode`] can write `dtype`.
pub fn can_encode(dtype: DType) -> bool {
    encode(dtype, &[], &mut []).is_ok()
}

/// A block's scale does not fit half precision.
pub struct Overflow;

/// Encodes block after block with `block`.
fn each<const BYTES: usize, const LEN: usize>(
    dtype: DType,
    values: &[f32],
    out: &mut [u8],
    block: impl Fn(&[f32; LEN], &mut [u8; BYTES]) -> Result<(), Overflow>,
) -> Result<(), QuantError> {
    let (values, _) = values.as_chunks::<LEN>();
    let (out, _) = out.as_chunks_mut::<BYTES>();
    for (at, (values, out)) in values.iter().zip(out).enumerate() {
        let first = at * LEN;
        if let Some((index, &value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(QuantError::NotFinite { dtype, index: first + index, value });
        }
        block(values, out).map_err(|Overflow| {
            let largest = values.iter().enumerate().max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
            let (index, &value) = largest.unwrap_or((0, &0.0));
            QuantError::TooLarge { dtype, index: first + index, value }
        })?;
    }
    Ok(())
}

/// A number as stored in half precision, and what it is then.
pub fn half(x: f32) -> Result<([u8; 2], f32), Overflow> {
    let half = half::f16::from_f32(x);
    if half.is_finite() { Ok((half.to_le_bytes(), half.to_f32())) } else { Err(Overflow) }
}
