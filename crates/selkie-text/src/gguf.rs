//! Tokenizers from the metadata of a GGUF file.

use std::borrow::Cow;

use selkie_formats::gguf::{Array, Metadata, Value};

use crate::bpe::Bpe;
use crate::bytes::decode_alphabet;
use crate::error::{Error, Result};
use crate::pretokenize::PreTokenizer;
use crate::spm::Spm;
use crate::tokenizer::{Encoder, NamedTemplate, Parts, SpecialIds, Tokenizer, default_first};
use crate::vocab::{Kind, Spelling, Vocab};

/// The fields `tokenizer.*` of a GGUF file, borrowed from it. A field that the file does not have stays at its default.
#[derive(Clone, Debug, Default)]
pub struct GgufVocab<'a> {
    /// `tokenizer.ggml.model`: `gpt2` for byte-level byte pairs, `llama` for SentencePiece with scores.
    pub model: &'a str,
    /// `tokenizer.ggml.pre`: the pre-tokenizer, for `gpt2`.
    pub pre: Option<&'a str>,
    /// `tokenizer.ggml.tokens`: the tokens by id. Their bytes need not be UTF-8.
    pub tokens: Vec<&'a [u8]>,
    /// `tokenizer.ggml.scores`: one a token; required for `llama`.
    pub scores: Option<Cow<'a, [f32]>>,
    /// `tokenizer.ggml.token_type`: one a token. 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Cow<'a, [i32]>>,
    /// `tokenizer.ggml.merges`: two tokens and a space between them, most urgent first; for `gpt2`.
    pub merges: Vec<&'a [u8]>,
    /// `tokenizer.ggml.bos_token_id` and its like.
    pub special: SpecialIds,
    /// `tokenizer.ggml.add_bos_token`
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template` under the name `default`, and `tokenizer.chat_template.NAME` under NAME.
    pub chat_templates: Vec<(&'a str, &'a str)>,
}

impl<'a> GgufVocab<'a> {
    /// The fields of a file that has been read. A value of a type that its field cannot have counts as missing, except
    /// where the tokenizer cannot do without it.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] where the kind of tokenizer or the tokens are missing, or a list is none.
    pub fn from_metadata(metadata: &'a Metadata) -> Result<Self> {
        let key = |field: &str| format!("tokenizer.ggml.{field}");
        let strings = |field: &'static str| match metadata.get(&key(field)) {
            None => Ok(Vec::new()),
            Some(value) => value
                .as_array()
                .and_then(Array::as_strings)
                .map(|list| list.iter().map(str::as_bytes).collect())
                .ok_or_else(|| {
                    Error::vocabulary(field, format!("a list of strings wanted, not {}", value.type_name()))
                }),
        };
        let numbers = |field: &'static str| match metadata.get(&key(field)) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(Error::vocabulary(field, format!("a list wanted, not {}", value.type_name()))),
        };
        let not_numbers = |field| Error::vocabulary(field, "a list of numbers wanted");
        let id = |field: &'static str| match metadata.get_i64(&key(field)) {
            // -1 is how some writers say that there is none.
            None | Some(-1) => Ok(None),
            Some(id) => u32::try_from(id).map(Some).map_err(|_| Error::vocabulary(field, format!("{id} is no id"))),
        };
        let scores = match numbers("scores")? {
            None => None,
            Some(Array::F32(scores)) => Some(Cow::Borrowed(scores.as_slice())),
            Some(other) => Some(Cow::Owned(other.to_f32s().ok_or_else(|| not_numbers("scores"))?)),
        };
        let token_types = match numbers("token_type")? {
            None => None,
            Some(Array::I32(types)) => Some(Cow::Borrowed(types.as_slice())),
            Some(other) => {
                let types = other.to_i64s().ok_or_else(|| not_numbers("token_type"))?;
                // A number that does not fit is no known type either.
                Some(types.into_iter().map(|number| i32::try_from(number).unwrap_or(-1)).collect())
            }
        };
        let templates = metadata.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("tokenizer.chat_template")?;
            let name = if name.is_empty() { "default" } else { name.strip_prefix('.')? };
            Some((name, value.as_str()?))
        });
        Ok(Self {
            model: metadata.get_str(&key("model")).ok_or_else(|| Error::vocabulary("model", "missing"))?,
            pre: metadata.get_str(&key("pre")),
            tokens: strings("tokens")?,
            scores,
            token_types,
            merges: strings("merges")?,
            special: SpecialIds {
                bos: id("bos_token_id")?,
                eos: id("eos_token_id")?,
                eot: id("eot_token_id")?,
                eom: id("eom_token_id")?,
                unk: id("unknown_token_id")?,
                sep: id("seperator_token_id")?,
                pad: id("padding_token_id")?,
                mask: id("mask_token_id")?,
            },
            add_bos: metadata.get_bool(&key("add_bos_token")),
            add_eos: metadata.get_bool(&key("add_eos_token")),
            add_space_prefix: metadata.get_bool(&key("add_space_prefix")),
            chat_templates: templates.collect(),
        })
    }
}

impl Tokenizer {
    /// Builds a tokenizer from the metadata of a GGUF file.
    ///
    /// # Errors
    /// [`Error::UnknownModel`] for kinds of tokenizers that are not implemented, [`Error::Vocabulary`] where fields contradict
    /// each other. A pre-tokenizer that is not known is a [warning](Tokenizer::warnings): the default one is used.
    pub fn from_gguf(gguf: &GgufVocab<'_>) -> Result<Self> {
        let mut special = gguf.special;
        let (is_spm, spelling) = match gguf.model {
            "gpt2" => (false, Spelling::Bytes),
            "llama" => (true, Spelling::WordMarks),
            other => return Err(Error::UnknownModel { model: other.to_owned() }),
        };
        check_ids(&special, gguf.tokens.len())?;
        if is_spm {
            // What SentencePiece models without these fields mean.
            for (id, standard) in [(&mut special.unk, 0), (&mut special.bos, 1), (&mut special.eos, 2)] {
                *id = id.or(Some(standard).filter(|&id| (id as usize) < gguf.tokens.len()));
            }
        }
        let vocab = read_tokens(gguf, spelling)?;
        let mut warnings = Vec::new();
        let (encoder, standard_bos) = if is_spm {
            let scores = gguf.scores.as_deref().ok_or_else(|| Error::vocabulary("scores", "missing"))?;
            same_length("scores", scores.len(), gguf.tokens.len())?;
            (Encoder::Spm(Spm::new(&vocab, scores, special.unk)), true)
        } else {
            let pre = pre_tokenizer(gguf.pre, &mut warnings);
            (Encoder::Bpe(Box::new(Bpe::new(pre, &gguf.tokens, &gguf.merges, &vocab)?)), pre.add_bos)
        };
        for (field, wanted, id) in
            [("add_bos_token", gguf.add_bos, special.bos), ("add_eos_token", gguf.add_eos, special.eos)]
        {
            if wanted == Some(true) && id.is_none() {
                return Err(Error::vocabulary(field, "set, but the model has no such token"));
            }
        }
        let template = |&(name, source): &(&str, &str)| NamedTemplate { name: name.into(), source: source.into() };
        let mut templates: Vec<_> = gguf.chat_templates.iter().map(template).collect();
        default_first(&mut templates);
        Ok(Self::assemble(Parts {
            vocab,
            encoder,
            special,
            add_bos: gguf.add_bos.unwrap_or(standard_bos),
            add_eos: gguf.add_eos.unwrap_or(false),
            space_prefix: is_spm && gguf.add_space_prefix.unwrap_or(true),
            templates,
            warnings,
        }))
    }
}

/// The pre-tokenizer of this name, or the default one and a warning.
fn pre_tokenizer(name: Option<&str>, warnings: &mut Vec<String>) -> PreTokenizer {
    let found = PreTokenizer::named(name.unwrap_or_default());
    if found.is_none() {
        warnings.push(match name {
            Some(name) => format!("pre-tokenizer `{name}` is not known: texts are split by the default one"),
            None => "the model names no pre-tokenizer: texts are split by the default one".to_owned(),
        });
    }
    found.unwrap_or(PreTokenizer::DEFAULT)
}

/// Refuses a list that has not one entry a token.
fn same_length(field: &'static str, found: usize, tokens: usize) -> Result<()> {
    if found == tokens {
        return Ok(());
    }
    Err(Error::vocabulary(field, format!("{found} entries for {tokens} tokens")))
}

/// Refuses ids outside the vocabulary.
fn check_ids(special: &SpecialIds, tokens: usize) -> Result<()> {
    let ids = [
        ("bos_token_id", special.bos),
        ("eos_token_id", special.eos),
        ("eot_token_id", special.eot),
        ("eom_token_id", special.eom),
        ("unknown_token_id", special.unk),
        ("seperator_token_id", special.sep),
        ("padding_token_id", special.pad),
        ("mask_token_id", special.mask),
    ];
    match ids.into_iter().find_map(|(field, id)| Some((field, id.filter(|&id| id as usize >= tokens)?))) {
        Some((field, id)) => Err(Error::vocabulary(field, format!("{id} is outside the vocabulary of {tokens}"))),
        None => Ok(()),
    }
}

/// Copies the tokens into one block, in the spelling in which they are used.
fn read_tokens(gguf: &GgufVocab<'_>, spelling: Spelling) -> Result<Vocab> {
    let (tokens, bytes) = (gguf.tokens.len(), gguf.tokens.iter().map(|text| text.len()).sum::<usize>());
    if tokens == 0 {
        return Err(Error::vocabulary("tokens", "there are none"));
    }
    // Ids and offsets have 32 bits.
    if u32::try_from(tokens.max(bytes)).is_err() {
        return Err(Error::vocabulary("tokens", format!("{tokens} tokens of {bytes} bytes are too many")));
    }
    if let Some(types) = &gguf.token_types {
        same_length("token_type", types.len(), tokens)?;
    }
    let mut vocab = Vocab::with_capacity(spelling, tokens, bytes);
    for (id, &text) in gguf.tokens.iter().enumerate() {
        let kind = match gguf.token_types.as_ref().map(|types| types[id]) {
            Some(number) => Kind::from_gguf(number)
                .ok_or_else(|| Error::vocabulary("token_type", format!("token {id} has the unknown type {number}")))?,
            None => Kind::NORMAL,
        };
        // Tokens that are matched as they stand are written as they stand, in every vocabulary.
        let in_alphabet = spelling == Spelling::Bytes && kind == Kind::NORMAL;
        vocab.push(kind, |out| {
            if !(in_alphabet && decode_alphabet(text, out)) {
                out.extend_from_slice(text);
            }
        });
    }
    Ok(vocab)
}
