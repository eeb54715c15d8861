//! Sizes and places of tensors in files: what all formats check alike.

use crate::{DType, Error, Result, TensorInfo};

/// Bytes of a stored tensor; `None` where no reading of the shape gives whole blocks, or the size overflows.
///
/// A matrix may be recorded with its two sizes swapped; then only the other order fills whole blocks.
pub fn stored_bytes(dtype: DType, shape: &[usize]) -> Option<u64> {
    let bytes = dtype.tensor_bytes(shape).or_else(|| match *shape {
        [rows, columns] => dtype.tensor_bytes(&[columns, rows]),
        _ => None,
    });
    bytes.map(|bytes| bytes as u64)
}

/// Checks that no two tensors of one source share bytes.
pub fn check_overlaps(file: &str, tensors: &[TensorInfo]) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|tensor| !tensor.range.is_empty()).collect();
    order.sort_by_key(|tensor| tensor.range.start);
    for pair in order.windows(2) {
        if let [before, after] = pair
            && before.range.end > after.range.start
        {
            let (before_range, after_range) = (&before.range, &after.range);
            let what = format!(
                "its bytes {}..{} overlap those of `{}`, {}..{}",
                after_range.start, after_range.end, before.name, before_range.start, before_range.end
            );
            return Err(Error::Tensor { file: file.to_owned(), tensor: after.name.clone(), what });
        }
    }
    Ok(())
}
