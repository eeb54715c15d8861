//! A model folder's tokenizer in a GGUF file: the files themselves, under the key that the format has for them, and, where
//! it is one of the kinds that readers of GGUF know, as the lists that they read.

use std::{collections::BTreeMap, fs};

use selkie_formats::gguf::{Array, Metadata, Value};
use serde_json::Value as Json;

use crate::{Error, Opened, Result};

/// `tokenizer.json`, whole. The format names this key.
pub(crate) const TOKENIZER: &str = "tokenizer.huggingface.json";

/// `tokenizer_config.json`, whole; only selkie reads it.
pub(crate) const CONFIG: &str = "tokenizer.huggingface.config";

/// The chat template, under the key where readers look for it.
pub(crate) const TEMPLATE: &str = "tokenizer.chat_template";

/// Puts what lies beside the weights into `metadata`; nothing where there is no tokenizer. `rows` are those of the embedding.
///
/// # Errors
/// Where a file cannot be read, is no UTF-8 or no JSON.
pub(super) fn put(opened: &Opened, rows: usize, metadata: &mut Metadata) -> Result<()> {
    let file = |name: &str| -> Result<Option<String>> {
        let path = opened.files.folder.join(name);
        let error = |e: std::io::Error| Error::File { path: path.display().to_string(), what: e.to_string() };
        if path.is_file() { fs::read_to_string(&path).map(Some).map_err(error) } else { Ok(None) }
    };
    let Some(tokenizer) = file("tokenizer.json")? else { return Ok(()) };
    let (config, template) = (file("tokenizer_config.json")?, file("chat_template.jinja")?);
    let json = |name: &str, text: &str| -> Result<Json> {
        let path = opened.files.folder.join(name).display().to_string();
        serde_json::from_str(text).map_err(|error| Error::File { path, what: error.to_string() })
    };
    let about = config.as_deref().map(|text| json("tokenizer_config.json", text)).transpose()?.unwrap_or(Json::Null);
    match Lists::read(&json("tokenizer.json", &tokenizer)?, rows) {
        Some(lists) => lists.put(&about, metadata),
        // Who does not know the keys below shall not take the model for one of another kind.
        None => {
            metadata.set("tokenizer.ggml.model", Value::String("none".into()));
        }
    }
    metadata.set(TOKENIZER, Value::String(tokenizer));
    let template = template.or_else(|| about["chat_template"].as_str().map(str::to_owned));
    for (key, text) in [(CONFIG, config), (TEMPLATE, template)] {
        if let Some(text) = text {
            metadata.set(key, Value::String(text));
        }
    }
    Ok(())
}

/// Byte-level byte pairs, as GGUF lists them.
struct Lists {
    /// How texts are split, by the name that GGUF has for it.
    pre: &'static str,
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
    ids: BTreeMap<String, u32>,
}

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

impl Lists {
    /// `None` where the tokenizer is of another kind, or one that GGUF has no name for.
    fn read(json: &Json, rows: usize) -> Option<Self> {
        let model = &json["model"];
        let plain = json["normalizer"].is_null() && json["decoder"]["type"] == "ByteLevel" && model["type"] == "BPE";
        let pre = pre_tokenizer(&json["pre_tokenizer"], model["ignore_merges"] == true).filter(|_| plain)?;
        let mut ids = BTreeMap::new();
        for (token, id) in model["vocab"].as_object()? {
            ids.insert(token.clone(), u32::try_from(id.as_u64()?).ok()?);
        }
        let mut kinds = BTreeMap::new();
        for token in json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice) {
            let id = u32::try_from(token["id"].as_u64()?).ok()?;
            ids.insert(token["content"].as_str()?.to_owned(), id);
            kinds.insert(id, if token["special"] == true { CONTROL } else { USER_DEFINED });
        }
        let size = rows.max(ids.values().max().map_or(0, |&id| id as usize + 1));
        if size > rows {
            // The model could not be asked for these.
            return None;
        }
        let (mut tokens, mut types): (Vec<String>, Vec<i32>) =
            (0..size).map(|id| (format!("[PAD{id}]"), UNUSED)).unzip();
        for (token, &id) in &ids {
            tokens[id as usize].clone_from(token);
            types[id as usize] = kinds.get(&id).copied().unwrap_or(NORMAL);
        }
        let merge = |entry: &Json| match entry {
            Json::String(pair) => Some(pair.clone()),
            Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
            _ => None,
        };
        let merges = model["merges"].as_array()?.iter().map(merge).collect::<Option<_>>()?;
        Some(Self { pre, tokens, types, merges, ids })
    }

    fn put(&self, about: &Json, metadata: &mut Metadata) {
        let mut set = |key: &str, value: Value| metadata.set(format!("tokenizer.ggml.{key}"), value);
        let strings = |list: &[String]| Value::Array(Array::String(list.iter().map(String::as_str).collect()));
        set("model", Value::String("gpt2".into()));
        set("pre", Value::String(self.pre.into()));
        set("tokens", strings(&self.tokens));
        set("token_type", Value::Array(Array::I32(self.types.clone())));
        set("merges", strings(&self.merges));
        let special = [
            ("bos_token", "bos_token_id"),
            ("eos_token", "eos_token_id"),
            ("unk_token", "unknown_token_id"),
            ("pad_token", "padding_token_id"),
        ];
        for (field, key) in special {
            let text = about[field].as_str().or_else(|| about[field]["content"].as_str());
            if let Some(&id) = text.and_then(|text| self.ids.get(text)) {
                set(key, Value::U32(id));
            }
        }
        for key in ["add_bos_token", "add_eos_token"] {
            if let Some(add) = about[key].as_bool() {
                set(key, Value::Bool(add));
            }
        }
    }
}

/// GGUF's name for how texts are split. `whole` are tokenizers that take a word which is a token as it is.
fn pre_tokenizer(json: &Json, whole: bool) -> Option<&'static str> {
    let steps = match json["pretokenizers"].as_array() {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(json),
    };
    let bytes = |step: &Json, regex: bool| {
        step["type"] == "ByteLevel" && step["add_prefix_space"] == false && step["use_regex"] == regex
    };
    let split = |step: &Json, pattern: &str| {
        let isolated = step["behavior"] == "Isolated" && step["invert"] == false;
        step["type"] == "Split" && isolated && step["pattern"]["Regex"] == pattern
    };
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    match steps {
        [one] if bytes(one, true) && !whole => Some("gpt-2"),
        [digits, then] if digits["type"] == "Digits" && bytes(then, true) && !whole => {
            (digits["individual_digits"] == true).then_some("smollm")
        }
        [words, then] if split(words, LLAMA3) && bytes(then, false) => {
            Some(if whole { "llama-bpe" } else { "smollm3" })
        }
        [words, then] if split(words, QWEN2) && bytes(then, false) && !whole => Some("qwen2"),
        _ => None,
    }
}
