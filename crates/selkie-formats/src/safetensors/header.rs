//! Parsing a safetensors header.

use std::{collections::BTreeMap, fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::{SafetensorsFile, UnknownTensor, type_from_name};
use crate::{Error, Result, TensorInfo, layout};

/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// Parses the header `bytes` of a file whose tensors' data lies in `data`.
pub fn parse(file: &str, bytes: &[u8], data: Range<u64>) -> Result<SafetensorsFile> {
    let header_error = |offset, what: String| Error::Header { file: file.to_owned(), offset, what };
    let text = std::str::from_utf8(bytes)
        .map_err(|error| header_error(8 + error.valid_up_to() as u64, "the header is not UTF-8".to_owned()))?;
    // The format wants the object at the very start, so that the file's type can be told.
    if !text.starts_with('{') {
        return Err(header_error(8, "the header does not begin with `{`".to_owned()));
    }
    let header: Header = serde_json::from_str(text).map_err(|error| header_error(8, format!("the header: {error}")))?;

    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for (name, entry) in header.tensors {
        let error = |what: String| Error::Tensor { file: file.to_owned(), tensor: name.clone(), what };
        let [begin, end] = entry.offsets;
        let (start, stop) = match (data.start.checked_add(begin), data.start.checked_add(end)) {
            (Some(start), Some(stop)) if start <= stop && stop <= data.end => (start, stop),
            _ => {
                let room = data.end - data.start;
                return Err(error(format!("offsets {begin}..{end} are not inside the {room} bytes of data")));
            }
        };
        let range = start..stop;
        let shape: Option<Vec<usize>> = entry.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let Some(shape) = shape else { return Err(error(format!("shape {:?} is impossible", entry.shape))) };
        match type_from_name(&entry.dtype) {
            Some(dtype) => {
                if dtype.tensor_bytes(&shape).map(|bytes| bytes as u64) != Some(end - begin) {
                    let what = format!("its {} bytes are not those of {dtype} {shape:?}", end - begin);
                    return Err(error(what));
                }
                known.push(TensorInfo { name, dtype, shape, source: 0, range });
            }
            None => unknown.push(UnknownTensor { name, dtype: entry.dtype, shape, source: 0, range }),
        }
    }
    known.sort_by(|a, b| (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name)));
    let pieces = known.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone()));
    let others = unknown.iter().map(|tensor| (tensor.name.as_str(), tensor.range.clone()));
    layout::check_overlaps(file, pieces.clone().chain(others.clone()))?;
    check_gaps(file, pieces.chain(others).map(|(_, range)| range).collect(), data)?;
    Ok(SafetensorsFile { metadata: header.metadata, tensors: known, unknown })
}

/// Checks that the tensors, which do not overlap, cover all of `data`.
fn check_gaps(file: &str, mut ranges: Vec<Range<u64>>, data: Range<u64>) -> Result<()> {
    ranges.push(data.end..data.end);
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut covered = data.start;
    for range in ranges {
        if range.start > covered {
            let what = format!("no tensor has the bytes from here to {}", range.start);
            return Err(Error::Header { file: file.to_owned(), offset: covered, what });
        }
        covered = covered.max(range.end);
    }
    Ok(())
}

/// The header as JSON has it.
#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Entry>,
}

/// A tensor's description.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    #[serde(rename = "data_offsets")]
    offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Header {
    /// By hand, since a JSON object read into a map forgets that a key came twice.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    let twice = if name == METADATA {
                        header.metadata = map.next_value()?;
                        std::mem::replace(&mut metadata, true)
                    } else {
                        header.tensors.insert(name.clone(), map.next_value()?).is_some()
                    };
                    if twice {
                        return Err(A::Error::custom(format_args!("`{name}` comes twice")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}
