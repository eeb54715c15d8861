//! MBJS models in GGUF and safetensors files: the parameters under their own names and as they are, and beside them what
//! the configuration and an MBJS file say besides, so that nothing is lost on the way there and back.

use std::collections::BTreeMap;

use super::{Config, MbjsOptions};
use crate::{
    Error, Result,
    gguf::{Metadata, Value},
};

/// `general.architecture` of MBJS models in GGUF files.
pub const ARCHITECTURE: &str = "mbjs";

/// The configuration, as JSON.
const CONFIG: &str = "mbjs.config";

/// The version of the MBJS file that the model came from, or is to become.
const VERSION: &str = "mbjs.version";

/// Whether that file ends in a checksum.
const TRAILER: &str = "mbjs.trailer";

/// The metadata of a GGUF file of the model.
pub fn gguf_metadata(config: &Config, options: MbjsOptions) -> Metadata {
    Metadata::from_iter([
        ("general.architecture", Value::String(ARCHITECTURE.to_owned())),
        ("mbjs.vocab_size", Value::U32(config.vocab_size() as u32)),
        ("mbjs.embedding_length", Value::U32(config.d_model() as u32)),
        ("mbjs.block_count", Value::U32(config.layers().len() as u32)),
        (CONFIG, Value::String(json(config))),
        (VERSION, Value::U32(options.version)),
        (TRAILER, Value::Bool(options.trailer)),
    ])
}

/// The free metadata of a safetensors file of the model.
pub fn safetensors_notes(config: &Config, options: MbjsOptions) -> BTreeMap<String, String> {
    let notes =
        [(CONFIG, json(config)), (VERSION, options.version.to_string()), (TRAILER, options.trailer.to_string())];
    notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The model that a GGUF file holds, where its architecture is [`ARCHITECTURE`].
///
/// # Errors
/// [`Error::Key`] where a key is missing or of another type, and as [`Config::parse`].
pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Option<(Config, MbjsOptions)>> {
    if metadata.get_str("general.architecture") != Some(ARCHITECTURE) {
        return Ok(None);
    }
    let config = parse(metadata.file(), metadata.need_str(CONFIG)?)?;
    let mut options = MbjsOptions::default();
    if metadata.contains(VERSION) {
        let version = metadata.need_u64(VERSION)?;
        options.version = known_version(version).ok_or_else(|| key_error(metadata.file(), VERSION, version))?;
    }
    if metadata.contains(TRAILER) {
        options.trailer = metadata.need_bool(TRAILER)?;
    }
    Ok(Some((config, options)))
}

/// The model that a safetensors file holds, where its free metadata has a configuration.
///
/// # Errors
/// As [`from_gguf`].
pub(crate) fn from_notes(file: &str, notes: &BTreeMap<String, String>) -> Result<Option<(Config, MbjsOptions)>> {
    let Some(config) = notes.get(CONFIG) else { return Ok(None) };
    let config = parse(file, config)?;
    let mut options = MbjsOptions::default();
    if let Some(version) = notes.get(VERSION) {
        let known = version.parse().ok().and_then(known_version);
        options.version = known.ok_or_else(|| key_error(file, VERSION, version))?;
    }
    if let Some(trailer) = notes.get(TRAILER) {
        options.trailer = trailer.parse().map_err(|_| key_error(file, TRAILER, trailer))?;
    }
    Ok(Some((config, options)))
}

fn json(config: &Config) -> String {
    serde_json::Value::Object(config.json().clone()).to_string()
}

fn parse(file: &str, json: &str) -> Result<Config> {
    Config::parse(&format!("{file}: {CONFIG}"), json.as_bytes())
}

fn known_version(version: u64) -> Option<u32> {
    (1..=3).contains(&version).then_some(version as u32)
}

fn key_error(file: &str, key: &str, value: impl std::fmt::Display) -> Error {
    Error::Key { file: file.to_owned(), key: key.to_owned(), what: format!("{value} is not known") }
}
