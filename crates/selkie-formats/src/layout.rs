//! Sizes and places of tensors in files: what all formats check alike.

use std::ops::Range;

use crate::{DType, Error, Result};

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

/// Checks that no two of the named ranges of one file share bytes.
pub fn check_overlaps<'a>(file: &str, tensors: impl Iterator<Item = (&'a str, Range<u64>)>) -> Result<()> {
    let mut order: Vec<_> = tensors.filter(|(_, range)| !range.is_empty()).collect();
    order.sort_by_key(|(_, range)| range.start);
    for ((before, one), (after, other)) in order.iter().zip(order.iter().skip(1)) {
        if one.end > other.start {
            let what = format!(
                "its bytes {}..{} overlap those of `{before}`, {}..{}",
                other.start, other.end, one.start, one.end
            );
            return Err(Error::Tensor { file: file.to_owned(), tensor: (*after).to_owned(), what });
        }
    }
    Ok(())
}
