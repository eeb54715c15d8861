//! A model folder's tokenizer in a GGUF file: the files themselves, under the key that the format has for them.

use std::fs;

use selkie_formats::gguf::{Metadata, Value};

use crate::{Error, Opened, Result};

/// `tokenizer.json`, whole. The format names this key.
pub(crate) const TOKENIZER: &str = "tokenizer.huggingface.json";

/// `tokenizer_config.json`, whole; only selkie reads it.
pub(crate) const CONFIG: &str = "tokenizer.huggingface.config";

/// `chat_template.jinja`, under the key where readers look for it.
pub(crate) const TEMPLATE: &str = "tokenizer.chat_template";

/// Puts what lies beside the weights into `metadata`; nothing where there is no tokenizer.
///
/// # Errors
/// Where a file cannot be read or is no UTF-8.
pub(super) fn put(opened: &Opened, metadata: &mut Metadata) -> Result<()> {
    let folder = &opened.files.folder;
    let files = [("tokenizer.json", TOKENIZER), ("tokenizer_config.json", CONFIG), ("chat_template.jinja", TEMPLATE)];
    if !folder.join(files[0].0).is_file() {
        return Ok(());
    }
    // Who does not know the keys below shall not take the model for one of another kind.
    metadata.set("tokenizer.ggml.model", Value::String("none".into()));
    for (name, key) in files {
        let path = folder.join(name);
        if path.is_file() {
            let error = |e: std::io::Error| Error::File { path: path.display().to_string(), what: e.to_string() };
            metadata.set(key, Value::String(fs::read_to_string(&path).map_err(error)?));
        }
    }
    Ok(())
}
