//! Tokenizers from `tokenizer.json` and `tokenizer_config.json`.

use std::sync::OnceLock;

use serde_json::Value;

use crate::bytes::{decode_alphabet, fallback_byte, repair};
use crate::error::{Error, Result, one_line};
use crate::tokenizer::{EncodeOptions, Encoder, NamedTemplate, Parts, SpecialIds, Tokenizer, default_first};
use crate::vocab::{Kind, Spelling, Vocab, WORD_MARK};

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";

/// The files of a model folder that concern text, as they stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct HuggingFaceFiles<'a> {
    /// `tokenizer.json`
    pub tokenizer: &'a [u8],
    /// `tokenizer_config.json`: the special tokens by name, and in most models the chat templates.
    pub config: Option<&'a [u8]>,
    /// `chat_template.jinja`, which goes before the templates in the configuration.
    pub chat_template: Option<&'a str>,
}

/// Tokenises by the rules of a `tokenizer.json`.
pub(crate) struct JsonEncoder {
    parsing: tokenizers::Tokenizer,
    /// The same, but special tokens in the text are text. Made when first asked for.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// `add_bos_token` and `add_eos_token` of the configuration, which overrule the file's own post-processor.
    add: (Option<bool>, Option<bool>),
}

impl JsonEncoder {
    /// The ids of `text`. `ends` are the tokens that the configuration puts around a text.
    pub(crate) fn encode(
        &self,
        text: &[u8],
        options: EncodeOptions,
        ends: (Option<u32>, Option<u32>),
    ) -> Result<Vec<u32>> {
        let tokenizer = if options.parse_special {
            &self.parsing
        } else {
            self.plain.get_or_init(|| {
                let mut plain = self.parsing.clone();
                plain.set_encode_special_tokens(true);
                plain
            })
        };
        let text = repair(text);
        let encoding = tokenizer
            .encode_fast(String::from_utf8_lossy(&text).as_ref(), options.add_special)
            .map_err(|error| Error::Encode { what: one_line(&error.to_string()) })?;
        let mut ids = encoding.get_ids().to_vec();
        if options.add_special {
            let added = encoding.get_special_tokens_mask();
            if self.add.0 == Some(false) && added.first() == Some(&1) {
                ids.remove(0);
            }
            if self.add.1 == Some(false) && added.len() > 1 && added.last() == Some(&1) {
                ids.pop();
            }
            if let Some(bos) = ends.0.filter(|&bos| added.first() != Some(&1) || ids.first() != Some(&bos)) {
                ids.insert(0, bos);
            }
            if let Some(eos) = ends.1.filter(|&eos| added.last() != Some(&1) || ids.last() != Some(&eos)) {
                ids.push(eos);
            }
        }
        Ok(ids)
    }
}

/// How the file's decoder turns tokens into text.
#[derive(Clone, Copy, Default)]
struct Decoder {
    byte_level: bool,
    word_marks: bool,
    byte_fallback: bool,
    space_prefix: bool,
}

impl Tokenizer {
    /// Builds a tokenizer from the files of a model folder.
    ///
    /// # Errors
    /// [`Error::Json`] where a file cannot be read, names a token that is not there, or decodes in a way that is not
    /// implemented.
    pub fn from_huggingface(files: &HuggingFaceFiles<'_>) -> Result<Self> {
        let parsing = tokenizers::Tokenizer::from_bytes(files.tokenizer).map_err(|error| wrong(TOKENIZER, error))?;
        let config = match files.config {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| wrong(CONFIG, error))?,
            None => Value::Null,
        };
        let decoder = Decoder::read(&parsing)?;
        let vocab = read_vocab(&parsing, decoder)?;
        let special = |key: &str| -> Result<Option<u32>> {
            let entry = &config[key];
            let Some(text) = entry.as_str().or_else(|| entry["content"].as_str()) else { return Ok(None) };
            match parsing.token_to_id(text) {
                Some(id) => Ok(Some(id)),
                None => Err(wrong(CONFIG, format!("{key} `{text}` is not in the vocabulary"))),
            }
        };
        let special = SpecialIds {
            bos: special("bos_token")?,
            eos: special("eos_token")?,
            // Names of tokens that merely might be used; some models list ones that they do not have.
            unk: special("unk_token").unwrap_or_default(),
            pad: special("pad_token").unwrap_or_default(),
            sep: special("sep_token").unwrap_or_default(),
            mask: special("mask_token").unwrap_or_default(),
            eot: None,
            eom: None,
        };
        let add = (config["add_bos_token"].as_bool(), config["add_eos_token"].as_bool());
        Ok(Self::assemble(Parts {
            vocab,
            encoder: Encoder::Json(Box::new(JsonEncoder { parsing, plain: OnceLock::new(), add })),
            special,
            add_bos: add.0.unwrap_or(false),
            add_eos: add.1.unwrap_or(false),
            space_prefix: decoder.space_prefix,
            templates: read_templates(files.chat_template, &config["chat_template"])?,
            warnings: Vec::new(),
        }))
    }
}

/// An error in one of the files.
fn wrong(file: &'static str, error: impl ToString) -> Error {
    Error::Json { file, what: one_line(&error.to_string()) }
}

impl Decoder {
    /// Reads the decoder's description. It is small, so it is looked at as JSON.
    fn read(tokenizer: &tokenizers::Tokenizer) -> Result<Self> {
        let description = serde_json::to_value(tokenizer.get_decoder()).map_err(|error| wrong(TOKENIZER, error))?;
        let mut decoder = Self::default();
        let steps = match description["decoders"].as_array() {
            Some(steps) => steps.as_slice(),
            None if description.is_null() => &[],
            None => std::slice::from_ref(&description),
        };
        for step in steps {
            match step["type"].as_str().unwrap_or_default() {
                "ByteLevel" => decoder.byte_level = true,
                "ByteFallback" => decoder.byte_fallback = true,
                "Metaspace" => {
                    decoder.word_marks = true;
                    decoder.space_prefix = step["prepend_scheme"] != "never";
                }
                "Replace" if step["pattern"]["String"] == WORD_MARK && step["content"] == " " => {
                    decoder.word_marks = true;
                }
                "Strip" if step["content"] == " " => decoder.space_prefix = step["start"] == 1,
                "Fuse" => {}
                other => return Err(wrong(TOKENIZER, format!("decoder `{other}` is not supported"))),
            }
        }
        Ok(decoder)
    }
}

/// Copies the tokens, in the spelling in which they are decoded.
fn read_vocab(tokenizer: &tokenizers::Tokenizer, decoder: Decoder) -> Result<Vocab> {
    // Ids may have holes, which stay tokens without a meaning. A hole far out is a mistake rather than a vocabulary.
    const MOST_IDS: usize = 1 << 24;
    let tokens = tokenizer.get_vocab(true);
    let size = tokens.values().max().map_or(0, |&id| id as usize + 1);
    if size == 0 || size > MOST_IDS {
        return Err(wrong(TOKENIZER, format!("a vocabulary of {size} is not possible")));
    }
    let mut texts = vec![""; size];
    for (text, &id) in &tokens {
        texts[id as usize] = text;
    }
    let added = tokenizer.get_added_tokens_decoder();
    let spelling = if decoder.word_marks { Spelling::WordMarks } else { Spelling::Bytes };
    let mut vocab = Vocab::with_capacity(spelling, size, texts.iter().map(|text| text.len()).sum());
    for (id, text) in texts.into_iter().enumerate() {
        let kind = match added.get(&(id as u32)) {
            Some(token) if token.special => Kind::CONTROL,
            Some(_) => Kind::USER_DEFINED,
            None if text.is_empty() => Kind::UNUSED,
            None if decoder.byte_fallback && fallback_byte(text.as_bytes()).is_some() => Kind::BYTE,
            None => Kind::NORMAL,
        };
        vocab.push(kind, |out| {
            if !(decoder.byte_level && kind == Kind::NORMAL && decode_alphabet(text.as_bytes(), out)) {
                out.extend_from_slice(text.as_bytes());
            }
        });
    }
    Ok(vocab)
}

/// The templates: a file of their own, one string, or a list of named ones.
fn read_templates(file: Option<&str>, config: &Value) -> Result<Vec<NamedTemplate>> {
    let named = |name: &str, source: &str| NamedTemplate { name: name.to_owned(), source: source.to_owned() };
    let mut templates: Vec<NamedTemplate> = file.map(|source| named("default", source)).into_iter().collect();
    match config {
        Value::String(source) if templates.is_empty() => templates.push(named("default", source)),
        Value::Array(list) => {
            for entry in list {
                let (Some(name), Some(source)) = (entry["name"].as_str(), entry["template"].as_str()) else {
                    return Err(wrong(CONFIG, "an entry of `chat_template` has no name or no template"));
                };
                if !templates.iter().any(|template| template.name == name) {
                    templates.push(named(name, source));
                }
            }
        }
        _ => {}
    }
    default_first(&mut templates);
    Ok(templates)
}
