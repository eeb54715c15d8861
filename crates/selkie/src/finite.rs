//! Weights that are no numbers, found as far as a look at the file's ends goes.

use std::collections::HashSet;

use selkie_formats::{NonFinite, QuantError, Tensor};
use selkie_model::{LoadedWeights, Weights};

use crate::Opened;

/// Bytes of a model's float matrices that are looked at whole. Of those beyond, and of quantised ones, samples are.
const WHOLE: usize = 64 << 20;

/// What is shorter is always looked at whole: norms, biases, rates.
const SMALL: usize = 64 << 10;

/// Bytes of a sample; there is one at the beginning, in the middle and at the end.
const SAMPLE: usize = 2048;

/// Warns of tensors that hold values which are no numbers, once each. A file of gigabytes is not read for it, but an MBJS
/// model is, which is floats throughout and read for its checksum anyway.
pub(crate) fn warn(opened: &Opened, weights: &Weights, loaded: &LoadedWeights) {
    let file = &opened.files.name;
    let mut left = if opened.checkpoint.mbjs.is_some() { usize::MAX } else { WHOLE };
    let mut warned = HashSet::new();
    for (id, weight) in weights.iter() {
        let loaded = loaded.get(id);
        for (i, part) in loaded.parts.iter().enumerate() {
            // A weight that was computed from several tensors goes by the first one's name.
            let whole = loaded.parts.len() == weight.parts.len();
            let name = if whole { &weight.parts[i].tensor.name } else { &weight.name };
            // Types that cannot be decoded are refused by whoever needs their values.
            let found = look(part, &mut left).unwrap_or_default();
            if !found.is_none() && warned.insert(name) {
                tracing::warn!(
                    "{file}: tensor `{name}` holds values that are no numbers ({found}): so will the results"
                );
            }
        }
    }
}

fn look(tensor: &Tensor, left: &mut usize) -> Result<NonFinite, QuantError> {
    let (dtype, bytes) = (tensor.dtype, &tensor.bytes);
    if bytes.len() <= SMALL || !dtype.is_quantised() && bytes.len() <= *left {
        *left -= bytes.len().min(*left);
        return NonFinite::of_blocks(dtype, bytes);
    }
    let block = dtype.block_bytes();
    let len = (SAMPLE / block).max(1) * block;
    let middle = (bytes.len() - len) / 2 / block * block;
    [0, middle, bytes.len() - len].into_iter().try_fold(NonFinite::default(), |sum, start| {
        Ok(sum.and(NonFinite::of_blocks(dtype, &bytes[start..start + len])?))
    })
}

#[cfg(test)]
mod tests {
    use selkie_formats::DType;

    use super::*;

    fn q8(blocks: usize, strange: usize) -> Tensor {
        let mut bytes = vec![0; 34 * blocks];
        bytes[34 * strange..][..2].copy_from_slice(&0x7c00u16.to_le_bytes());
        bytes[34 * strange + 2] = 1;
        Tensor { dtype: DType::Q8_0, shape: vec![blocks, 32], bytes: bytes.into() }
    }

    #[test]
    fn the_ends_and_the_middle_of_large_tensors_are_looked_at() {
        for (strange, seen) in [(0, true), (5000, true), (9999, true), (2500, false)] {
            let found = look(&q8(10_000, strange), &mut 0).expect("q8_0");
            assert_eq!(!found.is_none(), seen, "{strange}");
        }
        // Quantised, but small.
        assert!(!look(&q8(1000, 250), &mut 0).expect("q8_0").is_none());
    }

    #[test]
    fn float_matrices_are_looked_at_as_long_as_there_are_few() {
        let mut bytes = vec![0; 200_000];
        bytes[50_000..50_004].copy_from_slice(&f32::NAN.to_le_bytes());
        let tensor = Tensor { dtype: DType::F32, shape: vec![50_000], bytes: bytes.into() };
        let mut left = 300_000;
        assert_eq!(look(&tensor, &mut left), Ok(NonFinite { nan: 1, infinite: 0 }));
        assert_eq!(left, 100_000);
        assert_eq!(look(&tensor, &mut left), Ok(NonFinite::default()));
    }
}
