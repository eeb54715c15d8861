//! Half precision as the package writes it.

/// The half-precision bits of `value`, rounded toward zero. From 65536 on it is infinite; what NaN carries is dropped.
///
/// [`quant::f16_to_f32`](crate::quant::f16_to_f32) is the way back.
pub fn truncate_to_f16(value: f32) -> u16 {
    /// What the exponents of the two formats differ by.
    const REBIAS: i32 = 127 - 15;
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let mantissa = bits & 0x7f_ffff;
    let magnitude = match ((bits >> 23 & 0xff) as i32 - REBIAS, mantissa) {
        (exponent, 1..) if exponent == 255 - REBIAS => 0x7e00,
        (31.., _) => 0x7c00,
        (exponent @ 1.., _) => (exponent as u32) << 10 | mantissa >> 13,
        // Subnormal: the leading one is written out.
        (exponent @ -10..=0, _) => (mantissa | 0x80_0000) >> (14 - exponent),
        _ => 0,
    };
    sign | magnitude as u16
}
