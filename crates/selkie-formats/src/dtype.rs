//! How stored values are encoded, and how many bytes that takes.

/// An encoding of stored values. Quantised types store blocks of [`block_len`](Self::block_len) values.
///
/// The names are ggml's, and safetensors' for what ggml has not. Integers, booleans and the 8-bit floats occur in files
/// and can be read as bytes, but they are not weights: [`quant::decode`](crate::quant::decode) refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, non_camel_case_types, reason = "the names are the format's own")]
pub enum DType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
    U8,
    U16,
    U32,
    U64,
    BOOL,
    F8_E4M3,
    F8_E5M2,
    F8_E8M0,
    C64,
}

use DType::*;

/// The "id" of types which GGUF has not.
const NO_ID: u32 = u32::MAX;

/// One row per type: type, name, id in GGUF files, values a block, bytes a block.
const TABLE: &[(DType, &str, u32, usize, usize)] = &[
    (F32, "f32", 0, 1, 4),
    (F16, "f16", 1, 1, 2),
    (Q4_0, "q4_0", 2, 32, 18),
    (Q4_1, "q4_1", 3, 32, 20),
    (Q5_0, "q5_0", 6, 32, 22),
    (Q5_1, "q5_1", 7, 32, 24),
    (Q8_0, "q8_0", 8, 32, 34),
    (Q2_K, "q2_k", 10, 256, 84),
    (Q3_K, "q3_k", 11, 256, 110),
    (Q4_K, "q4_k", 12, 256, 144),
    (Q5_K, "q5_k", 13, 256, 176),
    (Q6_K, "q6_k", 14, 256, 210),
    (IQ2_XXS, "iq2_xxs", 16, 256, 66),
    (IQ2_XS, "iq2_xs", 17, 256, 74),
    (IQ3_XXS, "iq3_xxs", 18, 256, 98),
    (IQ1_S, "iq1_s", 19, 256, 50),
    (IQ4_NL, "iq4_nl", 20, 32, 18),
    (IQ3_S, "iq3_s", 21, 256, 110),
    (IQ2_S, "iq2_s", 22, 256, 82),
    (IQ4_XS, "iq4_xs", 23, 256, 136),
    (I8, "i8", 24, 1, 1),
    (I16, "i16", 25, 1, 2),
    (I32, "i32", 26, 1, 4),
    (I64, "i64", 27, 1, 8),
    (F64, "f64", 28, 1, 8),
    (IQ1_M, "iq1_m", 29, 256, 56),
    (BF16, "bf16", 30, 1, 2),
    (TQ1_0, "tq1_0", 34, 256, 54),
    (TQ2_0, "tq2_0", 35, 256, 66),
    (MXFP4, "mxfp4", 39, 32, 17),
    (NVFP4, "nvfp4", 40, 64, 36),
    (Q1_0, "q1_0", 41, 128, 18),
    (Q2_0, "q2_0", 42, 64, 18),
    (U8, "u8", NO_ID, 1, 1),
    (U16, "u16", NO_ID, 1, 2),
    (U32, "u32", NO_ID, 1, 4),
    (U64, "u64", NO_ID, 1, 8),
    (BOOL, "bool", NO_ID, 1, 1),
    (F8_E4M3, "f8_e4m3", NO_ID, 1, 1),
    (F8_E5M2, "f8_e5m2", NO_ID, 1, 1),
    (F8_E8M0, "f8_e8m0", NO_ID, 1, 1),
    (C64, "c64", NO_ID, 1, 8),
];

impl DType {
    /// Every type there is.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (DType, &'static str, u32, usize, usize) {
        // The table holds every variant: a test walks them.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// The lower-case name: `q4_k`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type of that name, in either case.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// The id in GGUF files; `u32::MAX`, which is no type's id, where [`is_ggml`](Self::is_ggml) says no.
    pub fn ggml_id(self) -> u32 {
        self.row().2
    }

    /// Whether GGUF files can hold this type.
    pub fn is_ggml(self) -> bool {
        self.ggml_id() != NO_ID
    }

    /// The type with that id in GGUF files.
    pub fn from_ggml_id(id: u32) -> Option<DType> {
        if id == NO_ID {
            return None;
        }
        TABLE.iter().find(|row| row.2 == id).map(|row| row.0)
    }

    /// Values in a block; 1 for plain numbers.
    pub fn block_len(self) -> usize {
        self.row().3
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of a row of `len` values; `None` where they do not fill whole blocks or the product overflows.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        let &(_, _, _, block_len, block_bytes) = self.row();
        if len.is_multiple_of(block_len) { (len / block_len).checked_mul(block_bytes) } else { None }
    }

    /// Bytes of a tensor of that shape (slowest axis first, rows along the last axis); `None` where rows do not fill
    /// whole blocks or a product overflows. An empty shape is one value.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<usize> {
        let (&row, outer) = shape.split_last().unwrap_or((&1, &[]));
        outer.iter().try_fold(self.row_bytes(row)?, |bytes, &size| bytes.checked_mul(size))
    }

    /// Whether values are stored in blocks with shared scales.
    pub fn is_quantised(self) -> bool {
        self.block_len() > 1
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (at, &(dtype, name, id, block_len, block_bytes)) in TABLE.iter().enumerate() {
            assert_eq!(DType::from_name(name), Some(dtype), "{name}");
            assert_eq!(format!("{dtype:?}").to_lowercase(), name);
            assert!(block_len > 0 && block_bytes > 0);
            assert_eq!(DType::from_ggml_id(id), (id != NO_ID).then_some(dtype));
            assert!(TABLE[..at].iter().all(|row| row.0 != dtype));
        }
        // The last variant counts them all.
        assert_eq!(TABLE.len(), C64 as usize + 1);
    }

    #[test]
    fn sizes_of_tensors() {
        assert_eq!(Q4_K.tensor_bytes(&[3, 512]), Some(3 * 2 * 144));
        assert_eq!(Q4_K.tensor_bytes(&[512, 3]), None);
        assert_eq!(F32.tensor_bytes(&[]), Some(4));
        assert_eq!(F32.tensor_bytes(&[0, 7]), Some(0));
        assert_eq!(F32.tensor_bytes(&[usize::MAX, 2]), None);
    }
}
