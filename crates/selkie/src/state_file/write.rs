//! Writing saved states.

use std::{collections::BTreeMap, io::Write};

use selkie_formats::{DType, TensorSpec, safetensors::SafetensorsWriter};

use super::{FORMAT, SavedState, VERSION};
use crate::Result;

impl SavedState {
    /// Writes the state; gives `out` back. The same state gives the same bytes.
    ///
    /// # Errors
    /// Where `out` fails.
    pub fn write<W: Write>(&self, out: W) -> Result<W> {
        let metadata = BTreeMap::from(
            [
                ("format", FORMAT.to_owned()),
                ("version", VERSION.to_string()),
                ("model", self.model.clone()),
                ("adapter", self.adapter.clone()),
                // All the same length, so that the file's does not depend on it.
                ("positions", format!("{:020}", self.positions)),
                ("token_hash", self.token_hash.to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        let words = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
        let pending = words(&self.pending);
        let ids = self.ids.as_ref().map(|ids| words(ids));
        let text = self.text.as_ref().map(|text| text.to_string().into_bytes());

        let mut tensors: Vec<(&str, DType, Vec<usize>, &[u8])> = vec![];
        for (name, plane) in &self.planes {
            tensors.push((name, plane.dtype, plane.shape.clone(), &plane.bytes));
        }
        tensors.push(("pending", DType::U32, vec![self.pending.len()], &pending));
        tensors.extend(ids.iter().map(|ids| ("ids", DType::U32, vec![ids.len() / 4], ids.as_slice())));
        tensors.extend(text.iter().map(|text| ("text", DType::U8, vec![text.len()], text.as_slice())));
        // Widest first, so that each value lies at a multiple of its size.
        tensors.sort_by_key(|(_, dtype, ..)| std::cmp::Reverse(dtype.block_bytes()));

        let specs: Vec<TensorSpec> = tensors
            .iter()
            .map(|(name, dtype, shape, _)| TensorSpec { name: (*name).into(), dtype: *dtype, shape: shape.clone() })
            .collect();
        let mut out = SafetensorsWriter::new(out, &metadata, &specs)?;
        tensors.iter().try_for_each(|(.., bytes)| out.write(bytes))?;
        Ok(out.finish()?)
    }
}
