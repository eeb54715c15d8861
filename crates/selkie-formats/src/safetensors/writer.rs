//! Writing safetensors files.

use std::{collections::BTreeMap, io::Write};

use serde_json::{Map, Value, json};

use super::type_name;
use crate::{Error, Result, TensorSpec, data::DataWriter};

/// Writes a safetensors file piece by piece: the header when made, then the tensors' data in their order.
///
/// The header is sorted by name and padded to a multiple of 8 bytes; the same input gives the same bytes.
pub struct SafetensorsWriter<W: Write>(DataWriter<W>);

impl<W: Write> SafetensorsWriter<W> {
    /// Writes the header. The data follows in the order of `tensors`; put those with the widest values first where they
    /// are not all of one width, so that each value lies at a multiple of its size.
    ///
    /// # Errors
    /// Where a type is one that safetensors has not (a quantised one), two tensors have one name, a size overflows; and
    /// where `out` fails.
    pub fn new(out: W, metadata: &BTreeMap<String, String>, tensors: &[TensorSpec]) -> Result<Self> {
        // Without gaps: the format has none.
        let mut data = DataWriter::new(out, 1, tensors)?;
        let mut entries = BTreeMap::new();
        let offsets = data.offsets();
        let ends = offsets.iter().skip(1).copied().chain([data.size()]);
        for ((spec, &begin), end) in tensors.iter().zip(&offsets).zip(ends) {
            let dtype = type_name(spec.dtype).ok_or_else(|| {
                let what = format!("tensor `{}`: safetensors files have no {}", spec.name, spec.dtype);
                Error::Write { what }
            })?;
            let entry = json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [begin, end]});
            entries.insert(spec.name.as_str(), entry);
        }
        // Built in order, so that it is sorted whatever map the JSON library uses.
        let mut header = Map::new();
        if !metadata.is_empty() {
            header.insert("__metadata__".to_owned(), json!(metadata));
        }
        header.extend(entries.into_iter().map(|(name, entry)| (name.to_owned(), entry)));
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');

        let size = (header.len() as u64).to_le_bytes();
        data.header(&[&size[..], &header].concat())?;
        Ok(Self(data))
    }

    /// Writes the next bytes of the tensors' data, in their order; a piece may end anywhere, also in the next tensor.
    ///
    /// # Errors
    /// Where there are more bytes than the tensors take, and where the output fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }

    /// Ends the file and answers the output.
    ///
    /// # Errors
    /// Where a tensor's bytes are missing, and where the output fails.
    pub fn finish(self) -> Result<W> {
        self.0.finish()
    }
}
