//! A checkpoint's settings, under the names of either format.

use serde_json::Value;

use selkie_formats::{Checkpoint, gguf::Metadata, json_f64};

use crate::{Error, Result};

/// Where a checkpoint keeps its settings.
pub(crate) enum Settings<'a> {
    /// Metadata of a GGUF file, keys prefixed with its architecture.
    Gguf { architecture: String, metadata: &'a Metadata },
    /// A `config.json` of transformers; a text model's part of it where the model has several.
    Config { model_type: String, config: &'a Value, text: Option<&'a Value> },
}

impl<'a> Settings<'a> {
    pub fn new(checkpoint: &'a Checkpoint, config: Option<&'a Value>) -> Result<Self> {
        if let Some(metadata) = checkpoint.gguf.as_ref() {
            let architecture = metadata
                .get_str("general.architecture")
                .ok_or_else(|| Error::setting("general.architecture", "is missing"))?
                .to_owned();
            return Ok(Settings::Gguf { architecture, metadata });
        }
        let config = config.ok_or_else(|| Error::setting("config.json", "is missing beside the weights"))?;
        let text = config.get("text_config").filter(|v| v.is_object());
        let model_type = text
            .and_then(|t| t.get("model_type"))
            .or_else(|| config.get("model_type"))
            .and_then(Value::as_str)
            .ok_or_else(|| Error::setting("model_type", "is missing"))?
            .to_owned();
        Ok(Settings::Config { model_type, config, text })
    }

    /// The architecture as the file names it.
    pub fn architecture(&self) -> &str {
        match self {
            Settings::Gguf { architecture, .. } => architecture,
            Settings::Config { model_type, .. } => model_type,
        }
    }

    pub fn is_gguf(&self) -> bool {
        matches!(self, Settings::Gguf { .. })
    }

    /// A field of the configuration; `None` for GGUF and for `null`.
    pub fn field(&self, name: &str) -> Option<&'a Value> {
        match self {
            Settings::Gguf { .. } => None,
            Settings::Config { config, text, .. } => {
                text.and_then(|t| t.get(name)).or_else(|| config.get(name)).filter(|v| !v.is_null())
            }
        }
    }

    /// The GGUF metadata and the key with the architecture before it.
    pub fn gguf(&self, key: &str) -> Option<(&'a Metadata, String)> {
        match self {
            Settings::Gguf { architecture, metadata } => Some((metadata, format!("{architecture}.{key}"))),
            Settings::Config { .. } => None,
        }
    }

    /// What a key is called in messages: as the file calls it.
    pub fn name(&self, gguf: &str, hf: &str) -> String {
        self.gguf(gguf).map_or_else(|| hf.to_owned(), |(_, key)| key)
    }

    /// A count. `None` where it is missing; an error where it is something else or absurd.
    pub fn count(&self, gguf: &str, hf: &str) -> Result<Option<usize>> {
        let found: Option<Option<u64>> = match self.gguf(gguf) {
            // A list with one count a layer (OpenELM, hybrids) is a schedule, which its family reads by itself.
            Some((metadata, key)) => metadata.get(&key).map(|_| metadata.get_u64(&key)),
            None => self.field(hf).map(Value::as_u64),
        };
        match found {
            None => Ok(None),
            // Sums and products of two sizes must fit a 32-bit machine's `usize`, or be checked.
            Some(Some(n)) if n < 1 << 31 => Ok(Some(n as usize)),
            Some(Some(n)) => Err(Error::setting(self.name(gguf, hf), format!("{n} is out of all proportion"))),
            Some(None) => Err(Error::setting(self.name(gguf, hf), "is not a whole number")),
        }
    }

    /// A count that must be there and positive.
    pub fn size(&self, gguf: &str, hf: &str) -> Result<usize> {
        match self.count(gguf, hf)? {
            Some(0) => Err(Error::setting(self.name(gguf, hf), "is 0")),
            Some(n) => Ok(n),
            None => Err(Error::setting(self.name(gguf, hf), "is missing")),
        }
    }

    /// A number. `None` where it is missing.
    pub fn number(&self, gguf: &str, hf: &str) -> Result<Option<f64>> {
        let found = match self.gguf(gguf) {
            Some((metadata, key)) => metadata.get(&key).map(|_| metadata.get(&key).and_then(|v| v.as_f64())),
            None => self.field(hf).map(json_f64),
        };
        match found {
            None => Ok(None),
            Some(Some(n)) if !n.is_nan() => Ok(Some(n)),
            Some(_) => Err(Error::setting(self.name(gguf, hf), "is not a number")),
        }
    }

    /// A switch of the configuration; `false` where it is missing.
    pub fn flag(&self, hf: &str) -> bool {
        self.field(hf).and_then(Value::as_bool).unwrap_or(false)
    }
}
