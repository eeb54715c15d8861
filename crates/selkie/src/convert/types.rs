//! Which type a tensor gets.

use std::collections::BTreeMap;

use selkie_formats::{
    DType,
    gguf::{Metadata, Value},
};

use super::FileFormat;

/// Types that there is an encoder for.
pub const TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
];

/// Parts of the names of what is a matrix only by its shape, or is small and matters much: routers, norms, convolutions and
/// rates of recurrent layers.
const PRECIOUS: &[&str] =
    &["ffn_gate_inp", "norm", "ssm_conv1d", "ssm_a", "shortconv.conv", "conv1d.weight", "A_log", "wConv"];

/// Whether `name` is a matrix that products are made with.
pub fn is_matrix(name: &str, shape: &[usize]) -> bool {
    let precious = name.ends_with("bias") || name.ends_with("ssm_d") || PRECIOUS.iter().any(|part| name.contains(part));
    shape.len() > 1 && !precious
}

/// What the types of a file's tensors depend on.
#[derive(Clone, Copy)]
pub struct Change {
    /// What is written.
    pub format: FileFormat,
    /// What matrices are to become.
    pub wanted: Option<DType>,
    /// Whether it is an MBJS model.
    pub mbjs: bool,
    /// Whether names and values are brought into another format's form.
    pub translated: bool,
}

/// Matrices become what is wanted where their rows fill its blocks, else the nearest type that they fill. Everything else
/// stays as it is; only a safetensors file becomes another float type as a whole, and what GGUF's readers expect in f32
/// is made so.
pub fn target(name: &str, shape: &[usize], stored: DType, change: Change) -> DType {
    let Change { format, wanted, mbjs, translated } = change;
    let float = matches!(stored, DType::F32 | DType::F16 | DType::BF16);
    if !is_matrix(name, shape) || !(float || stored.is_quantised()) {
        return match (format, wanted) {
            (FileFormat::Gguf, _) if translated && float => DType::F32,
            (FileFormat::Safetensors, Some(wanted)) if float && !wanted.is_quantised() => wanted,
            (FileFormat::Safetensors, _) if stored.is_quantised() => DType::F32,
            _ => stored,
        };
    }
    let Some(wanted) = wanted else {
        let decoded = format == FileFormat::Safetensors && stored.is_quantised();
        return if decoded { DType::F32 } else { stored };
    };
    let row = shape.last().copied().unwrap_or(1);
    let fits = |dtype: &DType| dtype.row_bytes(row).is_some();
    // The npm package's models stay as they are where nothing is gained.
    let nearest = if mbjs { [wanted, DType::Q8_0, stored] } else { [wanted, DType::Q8_0, DType::F16] };
    nearest.into_iter().find(fits).unwrap_or(stored)
}

/// GGUF names the type that most of a file's matrices have; the numbers are those of llama.cpp's `llama_ftype`.
pub fn set_file_type(metadata: &mut Metadata, matrices: impl Iterator<Item = Option<DType>>) {
    let mut counts: BTreeMap<DType, usize> = BTreeMap::new();
    matrices.flatten().for_each(|dtype| *counts.entry(dtype).or_default() += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype);
    let number = match most {
        Some(DType::F32) => 0,
        Some(DType::F16) => 1,
        Some(DType::Q4_0) => 2,
        Some(DType::Q4_1) => 3,
        Some(DType::Q8_0) => 7,
        Some(DType::Q5_0) => 8,
        Some(DType::Q5_1) => 9,
        Some(DType::Q4_K) => 15,
        Some(DType::Q5_K) => 17,
        Some(DType::Q6_K) => 18,
        Some(DType::BF16) => 32,
        _ => return,
    };
    metadata.set("general.file_type", Value::U32(number));
}
