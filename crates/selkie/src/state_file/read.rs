//! Reading saved states.

use std::{fs, path::Path};

use bytes::Bytes;
use selkie_formats::{ByteSource, DType, Error as FormatError, MemorySource, TensorInfo, safetensors::SafetensorsFile};

use super::{FORMAT, SavedState, VERSION};
use crate::{Error, Result, TokenHash};

/// No sequence is longer; a larger number is a mistake.
const MAX_POSITIONS: u32 = i32::MAX as u32;

impl SavedState {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Where it is no plain file, and as [`read`](Self::read).
    pub fn open(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let error = |what: String| Error::File { path: file.clone(), what };
        // A pipe may never end.
        if !fs::metadata(path).map_err(|e| error(e.to_string()))?.is_file() {
            return Err(error("is not a file".into()));
        }
        // Read rather than mapped: whoever keeps such files may write them over while this one is in use.
        let bytes = fs::read(path).map_err(|e| error(e.to_string()))?;
        Self::read(&file, bytes.into())
    }

    /// Reads a file's bytes; errors call it `name`. Whether it fits a model is seen when it is
    /// [restored](crate::Model::restore).
    ///
    /// # Errors
    /// Where it is no saved state or not all of one, of a later version, or parts of it disagree.
    pub fn read(name: &str, bytes: Bytes) -> Result<Self> {
        let error = |what: String| Error::SavedState { file: name.to_owned(), what };
        let source = MemorySource::new(name, bytes);
        let header = pollster::block_on(SafetensorsFile::read(&source)).map_err(|e| match e {
            FormatError::Header { offset, what, .. } => error(format!("is no saved state: at byte {offset}: {what}")),
            FormatError::Tensor { tensor, what, .. } => error(format!("is no saved state: `{tensor}`: {what}")),
            e => e.into(),
        })?;
        let key = |key: &str| header.metadata.get(key).map(String::as_str);
        if key("format") != Some(FORMAT) {
            let what = "is no saved state: a safetensors file, but its metadata has no `format` of";
            return Err(error(format!("{what} `{FORMAT}`")));
        }
        let need = |name: &str| key(name).ok_or_else(|| error(format!("metadata `{name}` is missing")));
        match need("version")?.parse::<u32>() {
            Ok(1..=VERSION) => {}
            Ok(version) if version > VERSION => {
                return Err(error(format!(
                    "is of version {version}, but only versions up to {VERSION} are known here"
                )));
            }
            _ => return Err(error(format!("`version` is `{}`", need("version")?))),
        }
        let positions = need("positions")?;
        let positions = positions.parse().ok().filter(|&n: &u32| n <= MAX_POSITIONS).map(|n| n as usize);
        let positions =
            positions.ok_or_else(|| error(format!("`positions` is `{}`", need("positions").unwrap_or(""))))?;
        let token_hash = TokenHash::parse(need("token_hash")?)
            .ok_or_else(|| error("`token_hash` is not 64 hexadecimal digits".into()))?;
        let mut saved = SavedState {
            name: name.to_owned(),
            model: need("model")?.to_owned(),
            adapter: need("adapter")?.to_owned(),
            positions,
            token_hash,
            pending: vec![],
            ids: None,
            text: None,
            planes: vec![],
        };
        if let Some(tensor) = header.unknown.first() {
            return Err(error(format!("`{}` is of the type `{}`, which is not known here", tensor.name, tensor.dtype)));
        }
        let mut has_pending = false;
        for info in &header.tensors {
            let bytes = pollster::block_on(source.read(info.range.clone()))?;
            match info.name.as_str() {
                "pending" => {
                    saved.pending = saved.words(info, &bytes)?;
                    has_pending = true;
                }
                "ids" => saved.ids = Some(saved.words(info, &bytes)?),
                "text" => {
                    let text = serde_json::from_slice(&bytes).map_err(|e| error(format!("`text` is no JSON: {e}")))?;
                    saved.text = Some(text);
                }
                name if name.starts_with("slot.") => {
                    let plane = selkie_formats::Tensor { dtype: info.dtype, shape: info.shape.clone(), bytes };
                    saved.planes.push((name.to_owned(), plane));
                }
                name => return Err(error(format!("has `{name}`, which version {VERSION} has not"))),
            }
        }
        if !has_pending {
            return Err(error("`pending` is missing".into()));
        }
        saved.check_ids()?;
        Ok(saved)
    }

    fn words(&self, info: &TensorInfo, bytes: &[u8]) -> Result<Vec<u32>> {
        if info.dtype != DType::U32 || info.shape.len() != 1 {
            let what = format!("`{}` is {} {:?}, not a list of u32", info.name, info.dtype, info.shape);
            return Err(self.error(what));
        }
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn check_ids(&self) -> Result<()> {
        let Some(ids) = &self.ids else { return Ok(()) };
        if ids.len() != self.positions {
            let (ids, positions) = (ids.len(), self.positions);
            return Err(self.error(format!("has {ids} ids, but its state holds {positions} tokens")));
        }
        if TokenHash::of(ids) != self.token_hash {
            return Err(self.error("its ids are not those that `token_hash` was made of"));
        }
        Ok(())
    }
}
