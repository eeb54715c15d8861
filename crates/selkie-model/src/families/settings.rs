//! A checkpoint's settings, under the names of either format.

use std::rc::Rc;

use selkie_formats::{
    Checkpoint,
    gguf::{Array, Metadata, Value as GgufValue},
    json_f64,
};
use serde_json::Value;

use super::export::Record;
use crate::{Error, Result};

/// What stands for the missing type of the configurations of state-spaces.
pub(super) const MAMBA_SSM: &str = "mamba_ssm";

/// Where a checkpoint keeps its settings.
///
/// A setting is asked for by its key in GGUF files and its field in configurations. Either may be several spellings with `|`
/// between them: the first that is there counts.
pub(crate) enum Settings<'a> {
    /// Metadata of a GGUF file, keys prefixed with its architecture.
    Gguf { architecture: String, metadata: &'a Metadata },
    /// A `config.json` of transformers; a text model's part of it where the model has several.
    Config { model_type: String, config: &'a Value, text: Option<&'a Value>, record: Option<Rc<Record>> },
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
        let model_type = match text.and_then(|t| t.get("model_type")).or_else(|| config.get("model_type")) {
            // The models of state-spaces name no type, but no other configuration has this field.
            None if config.get("ssm_cfg").is_some() => MAMBA_SSM,
            found => found.and_then(Value::as_str).ok_or_else(|| Error::setting("model_type", "is missing"))?,
        };
        let model_type = model_type.to_owned();
        Ok(Settings::Config { model_type, config, text, record: None })
    }

    /// The same; what is asked for from now on is noted.
    pub fn recorded(mut self, to: Rc<Record>) -> Self {
        if let Settings::Config { record, .. } = &mut self {
            *record = Some(to);
        }
        self
    }

    /// Where it is noted what is asked for.
    pub fn record(&self) -> Option<&Rc<Record>> {
        match self {
            Settings::Gguf { .. } => None,
            Settings::Config { record, .. } => record.as_ref(),
        }
    }

    fn note(&self, gguf: &str, value: GgufValue) {
        if let Some(record) = self.record() {
            record.key(gguf, value);
        }
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
    pub fn field(&self, names: &str) -> Option<&'a Value> {
        names.split('|').find_map(|name| self.one_field(name))
    }

    fn one_field(&self, name: &str) -> Option<&'a Value> {
        self.stored(name).filter(|v| !v.is_null())
    }

    /// A field as it is stored, `null` too.
    fn stored(&self, name: &str) -> Option<&'a Value> {
        match self {
            Settings::Gguf { .. } => None,
            Settings::Config { config, text, .. } => {
                // `a.b` is field `b` of the object `a`.
                let get = |from: &'a Value| name.split('.').try_fold(from, |value, part| value.get(part));
                text.and_then(get).or_else(|| get(config))
            }
        }
    }

    /// Whether this is a configuration that leaves `name` out: then the default of its class holds, which `null` is not.
    pub fn leaves_out(&self, name: &str) -> bool {
        !self.is_gguf() && self.stored(name).is_none()
    }

    /// The GGUF metadata and the key with the architecture before it.
    pub fn gguf(&self, keys: &str) -> Option<(&'a Metadata, String)> {
        match self {
            Settings::Gguf { architecture, metadata } => {
                let mut all = keys.split('|').map(|key| format!("{architecture}.{key}"));
                let found = all.clone().find(|key| metadata.contains(key)).or_else(|| all.next());
                found.map(|key| (*metadata, key))
            }
            Settings::Config { .. } => None,
        }
    }

    /// What a key is called in messages: as the file calls it.
    pub fn name(&self, gguf: &str, hf: &str) -> String {
        self.gguf(gguf).map_or_else(
            || {
                let found = hf.split('|').find(|name| self.one_field(name).is_some());
                found.or_else(|| hf.split('|').next()).unwrap_or(hf).to_owned()
            },
            |(_, key)| key,
        )
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
            Some(Some(n)) if n < 1 << 31 => {
                self.note(gguf, GgufValue::U32(n as u32));
                Ok(Some(n as usize))
            }
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

    /// A count which configurations may leave to the model with the word `auto`; `None` there too.
    pub fn count_or_auto(&self, gguf: &str, hf: &str) -> Result<Option<usize>> {
        if self.field(hf).and_then(Value::as_str) == Some("auto") { Ok(None) } else { self.count(gguf, hf) }
    }

    /// A count that must be positive, with its value where a configuration leaves it out; 0 where it must not.
    pub fn size_or(&self, gguf: &str, (hf, default): (&str, usize)) -> Result<usize> {
        match self.count(gguf, hf)? {
            None if default > 0 && !self.is_gguf() => {
                self.note(gguf, GgufValue::U32(default as u32));
                Ok(default)
            }
            _ => self.size(gguf, hf),
        }
    }

    /// A word. `None` where it is missing.
    pub fn word(&self, gguf: &str, hf: &str) -> Result<Option<&'a str>> {
        let found = match self.gguf(gguf) {
            Some((metadata, key)) => metadata.get(&key).map(|value| value.as_str()),
            None => self.field(hf).map(Value::as_str),
        };
        let found =
            found.map(|word| word.ok_or_else(|| Error::setting(self.name(gguf, hf), "is not a word"))).transpose()?;
        found.into_iter().for_each(|word| self.note(gguf, GgufValue::String(word.to_owned())));
        Ok(found)
    }

    /// `found`, if it is positive.
    pub fn positive(&self, gguf: &str, hf: &str, found: usize) -> Result<usize> {
        if found == 0 { Err(Error::setting(self.name(gguf, hf), "is 0")) } else { Ok(found) }
    }

    /// Counts, one a layer: a list of them, or one for all layers. `None` where it is missing.
    pub fn counts(&self, gguf: &str, hf: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let list: Option<Option<Vec<u64>>> = match self.gguf(gguf) {
            Some((metadata, key)) => metadata.get_array(&key).map(|list| list.to_u64s()),
            None => self.field(hf).and_then(Value::as_array).map(|list| list.iter().map(Value::as_u64).collect()),
        };
        let Some(list) = list else { return Ok(self.count(gguf, hf)?.map(|n| vec![n; n_layers])) };
        let bad = |what: String| Err(Error::setting(self.name(gguf, hf), what));
        match list {
            None => bad("is not a list of whole numbers".into()),
            Some(list) if list.len() != n_layers => {
                bad(format!("has {} entries, one for each of {n_layers} layers is wanted", list.len()))
            }
            Some(list) => match list.iter().find(|&&n| n >= 1 << 31) {
                Some(n) => bad(format!("{n} is out of all proportion")),
                None => {
                    self.note(gguf, GgufValue::Array(Array::U32(list.iter().map(|&n| n as u32).collect())));
                    Ok(Some(list.into_iter().map(|n| n as usize).collect()))
                }
            },
        }
    }

    /// The largest of a GGUF file's counts, one a layer. `None` where there is no such list.
    pub fn largest(&self, gguf: &str) -> Result<Option<usize>> {
        let Some((metadata, key)) = self.gguf(gguf) else { return Ok(None) };
        let Some(list) = metadata.get_array(&key) else { return Ok(None) };
        match list.to_u64s().map(|list| list.into_iter().max().unwrap_or(0)) {
            Some(n) if n < 1 << 31 => Ok(Some(n as usize)),
            _ => Err(Error::setting(key, "is no list of sensible whole numbers")),
        }
    }

    /// Switches of a GGUF file, one a layer. `None` where they are missing.
    pub fn switches(&self, gguf: &str, n_layers: usize) -> Result<Option<Vec<bool>>> {
        let Some((metadata, key)) = self.gguf(gguf) else { return Ok(None) };
        let Some(found) = metadata.get(&key) else { return Ok(None) };
        match found.as_array().and_then(|list| list.to_bools()) {
            None => Err(Error::setting(key, "is not a list of switches")),
            Some(list) if list.len() != n_layers => {
                let what = format!("has {} entries, one for each of {n_layers} layers is wanted", list.len());
                Err(Error::setting(key, what))
            }
            list => Ok(list),
        }
    }

    /// Words, one a layer. `None` where the field is missing.
    pub fn words(&self, hf: &str, n_layers: usize) -> Result<Option<Vec<&'a str>>> {
        let Some(found) = self.field(hf) else { return Ok(None) };
        let bad = |what: String| Error::setting(self.name("", hf), what);
        let list = found.as_array().ok_or_else(|| bad("is not a list".into()))?;
        if list.len() != n_layers {
            return Err(bad(format!("has {} entries, one for each of {n_layers} layers is wanted", list.len())));
        }
        let word = |(layer, entry): (usize, &'a Value)| {
            entry.as_str().ok_or_else(|| bad(format!("layer {layer}: {entry} is not a word")))
        };
        list.iter().enumerate().map(word).collect::<Result<_>>().map(Some)
    }

    /// What each layer is, by the words of a list. `None` where the field is missing.
    pub fn kinds<T: Copy>(&self, hf: &str, n_layers: usize, known: &[(&str, T)]) -> Result<Option<Vec<T>>> {
        let Some(words) = self.words(hf, n_layers)? else { return Ok(None) };
        let kind = |(layer, word): (usize, &str)| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map(|(_, kind)| *kind).ok_or_else(|| {
                let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let what = format!("layer {layer}: `{word}` is not known ({} are)", known.join(", "));
                Error::setting(self.name("", hf), what)
            })
        };
        words.into_iter().enumerate().map(kind).collect::<Result<_>>().map(Some)
    }

    /// The layers that a list names.
    pub fn layers(&self, hf: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(found) = self.field(hf) else { return Ok(None) };
        let bad = |what: String| Error::setting(self.name("", hf), what);
        let list = found.as_array().ok_or_else(|| bad("is not a list".into()))?;
        let layer = |entry: &Value| match entry.as_u64() {
            Some(layer) if layer < n_layers as u64 => Ok(layer as usize),
            _ => Err(bad(format!("{entry} is none of {n_layers} layers"))),
        };
        list.iter().map(layer).collect::<Result<_>>().map(Some)
    }

    /// A number. `None` where it is missing.
    pub fn number(&self, gguf: &str, hf: &str) -> Result<Option<f64>> {
        let found = match self.gguf(gguf) {
            Some((metadata, key)) => metadata.get(&key).map(|_| metadata.get(&key).and_then(|v| v.as_f64())),
            None => self.field(hf).map(json_f64),
        };
        match found {
            None => Ok(None),
            Some(Some(n)) if !n.is_nan() => {
                self.note(gguf, GgufValue::F32(n as f32));
                Ok(Some(n))
            }
            Some(_) => Err(Error::setting(self.name(gguf, hf), "is not a number")),
        }
    }

    /// A number that scales something; `default` where it is missing.
    pub fn scale(&self, gguf: &str, hf: &str, default: f32) -> Result<f32> {
        match self.number(gguf, hf)? {
            Some(n) if !n.is_finite() => Err(Error::setting(self.name(gguf, hf), format!("is {n}"))),
            found => Ok(found.map_or(default, |n| n as f32)),
        }
    }

    /// A switch of the configuration; `false` where it is missing.
    pub fn flag(&self, hf: &str) -> Result<bool> {
        self.switch("", hf, false)
    }

    /// A switch of either format; `default` where it is missing, an error where it is something else.
    pub fn switch(&self, gguf: &str, hf: &str, default: bool) -> Result<bool> {
        let found = match self.gguf(gguf) {
            Some((metadata, key)) => metadata.get(&key).map(|_| metadata.get_bool(&key)),
            None => self.field(hf).map(Value::as_bool),
        };
        match found {
            None => Ok(default),
            Some(Some(on)) => {
                self.note(gguf, GgufValue::Bool(on));
                Ok(on)
            }
            Some(None) => Err(Error::setting(self.name(gguf, hf), "is neither true nor false")),
        }
    }

    /// A product of sizes, which must not be out of all proportion.
    pub fn product<const N: usize>(&self, gguf: &str, hf: &str, sizes: [usize; N]) -> Result<usize> {
        let product = sizes.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).filter(|&n| n < 1 << 28);
        product
            .ok_or_else(|| Error::setting(self.name(gguf, hf), format!("{sizes:?} together are out of all proportion")))
    }
}
