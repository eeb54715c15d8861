//! The tokenizer of a model, whatever it was read from.

use std::borrow::Cow;

use crate::bpe::Bpe;
use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::huggingface::JsonEncoder;
use crate::special::{Fragment, Matcher};
use crate::spm::Spm;
use crate::vocab::{Kind, Vocab};

/// What to do besides tokenising the text. Both are off by default: the text is just text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncodeOptions {
    /// Add the tokens with which the model wants a text to begin and end, such as `<bos>`.
    pub add_special: bool,
    /// Take special tokens written in the text (`<|im_end|>`) for what they say. Leave it off for text that is not yours:
    /// with it a user can close their own turn.
    pub parse_special: bool,
}

/// The ids of tokens with a meaning of their own. `None` where the model has no such token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpecialIds {
    /// Starts a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Ends a message inside a turn, where the model waits for a tool.
    pub eom: Option<u32>,
    /// Stands for what the vocabulary cannot say.
    pub unk: Option<u32>,
    /// Separates two texts.
    pub sep: Option<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
    /// Stands for what the model is to guess.
    pub mask: Option<u32>,
}

/// A chat template as the model's files give it, not yet compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedTemplate {
    /// `default`, or the name of a variant such as `tool_use`.
    pub name: String,
    /// The Jinja source.
    pub source: String,
}

/// How text becomes ids.
pub(crate) enum Encoder {
    Bpe(Box<Bpe>),
    Spm(Spm),
    Json(Box<JsonEncoder>),
}

/// The tokenizer of a model.
///
/// Read it with [`Tokenizer::from_gguf`] or [`Tokenizer::from_huggingface`]. It never changes afterwards, and may be shared
/// between threads.
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    pub(crate) encoder: Encoder,
    pub(crate) special: SpecialIds,
    pub(crate) end_tokens: Vec<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
    /// Texts get a space before them, and lose it again.
    pub(crate) space_prefix: bool,
    pub(crate) templates: Vec<NamedTemplate>,
    pub(crate) warnings: Vec<String>,
    user_defined: Matcher,
    all_special: Matcher,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.encoder {
            Encoder::Bpe(_) => "byte pairs",
            Encoder::Spm(_) => "sentencepiece",
            Encoder::Json(_) => "tokenizer.json",
        };
        f.debug_struct("Tokenizer")
            .field("kind", &kind)
            .field("vocab_size", &self.vocab_size())
            .field("special", &self.special)
            .finish_non_exhaustive()
    }
}

/// What a reader of some file format found out.
pub(crate) struct Parts {
    pub(crate) vocab: Vocab,
    pub(crate) encoder: Encoder,
    pub(crate) special: SpecialIds,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
    pub(crate) space_prefix: bool,
    pub(crate) templates: Vec<NamedTemplate>,
    pub(crate) warnings: Vec<String>,
}

impl Tokenizer {
    /// Puts a tokenizer together.
    pub(crate) fn assemble(parts: Parts) -> Self {
        let Parts { mut vocab, encoder, special, add_bos, add_eos, space_prefix, templates, warnings } = parts;
        let end_tokens = vocab.end_tokens([special.eos, special.eot, special.eom].into_iter().flatten());
        // A token that is also a control token is only matched where special tokens are parsed.
        let only_text = |kind: Kind| kind.is_matched() && !kind.is_special();
        let user_defined = Matcher::new(&vocab, vocab.ids().filter(|&id| only_text(vocab.kind(id))));
        let all_special = Matcher::new(&vocab, vocab.ids().filter(|&id| vocab.kind(id).is_matched()));
        Self {
            encoder,
            special,
            end_tokens,
            add_bos: add_bos && special.bos.is_some(),
            add_eos: add_eos && special.eos.is_some(),
            space_prefix,
            templates,
            warnings,
            user_defined,
            all_special,
            vocab,
        }
    }

    /// The ids of `text`, which need not be UTF-8: bytes that are no text become U+FFFD, or byte tokens where the
    /// vocabulary has them.
    ///
    /// # Errors
    /// Only a `tokenizer.json` can refuse a text, through a rule of its own.
    pub fn encode(&self, text: &[u8], options: EncodeOptions) -> Result<Vec<u32>> {
        if let Encoder::Json(encoder) = &self.encoder {
            let ends = (self.special.bos.filter(|_| self.add_bos), self.special.eos.filter(|_| self.add_eos));
            return encoder.encode(text, options, ends);
        }
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special && self.add_bos {
            out.extend(self.special.bos);
        }
        let matcher = if options.parse_special { &self.all_special } else { &self.user_defined };
        let mut after_special = true;
        for fragment in matcher.split(&self.vocab, text) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(text) => match &self.encoder {
                    Encoder::Bpe(bpe) => bpe.encode(&self.vocab, text, &mut out),
                    Encoder::Spm(spm) => {
                        spm.encode(&self.vocab, text, self.space_prefix && after_special, &mut out);
                    }
                    Encoder::Json(_) => {}
                },
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if options.add_special && self.add_eos {
            out.extend(self.special.eos);
        }
        Ok(out)
    }

    /// The bytes that `ids` stand for. With `skip_special`, control and unknown tokens are left out; else they are written
    /// out (`<|im_end|>`).
    ///
    /// A model that puts a space before every text (`add_space_prefix`) has one space removed from the start again.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        let mut at_start = true;
        for &id in ids {
            self.append_piece(id, skip_special, &mut at_start, &mut out)?;
        }
        Ok(out)
    }

    /// Appends what `id` adds to a text. `at_start` says whether nothing has been written yet, and is kept up to date.
    pub(crate) fn append_piece(
        &self,
        id: u32,
        skip_special: bool,
        at_start: &mut bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let piece = self.piece(id)?;
        if skip_special && self.is_special(id) {
            return Ok(());
        }
        let strip = std::mem::replace(at_start, false) && self.space_prefix && !self.is_special(id);
        let piece = piece.as_ref();
        out.extend_from_slice(if strip { piece.strip_prefix(b" ").unwrap_or(piece) } else { piece });
        Ok(())
    }

    /// The bytes that one token stands for, special tokens written out. They may be a part of a character.
    ///
    /// # Errors
    /// [`Error::UnknownId`] for an id outside the vocabulary.
    pub fn piece(&self, id: u32) -> Result<Cow<'_, [u8]>> {
        let size = self.vocab_size();
        if id as usize >= size { Err(Error::UnknownId { id, size }) } else { Ok(self.vocab.piece(id)) }
    }

    /// The id of the token whose piece is exactly `piece`, searched one by one: for setting things up, not for text. Special
    /// tokens are found by their written form. The first of several.
    #[must_use]
    pub fn find_piece(&self, piece: &[u8]) -> Option<u32> {
        self.vocab.ids().find(|&id| *self.vocab.piece(id) == *piece)
    }

    /// The number of tokens; ids are below it.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The tokens with a meaning of their own.
    #[must_use]
    pub fn special_ids(&self) -> SpecialIds {
        self.special
    }

    /// The token that starts a text.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The token that ends a text.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// Every token after which a model has nothing more to say, ascending: the end of the text, of a turn or of a message
    /// to a tool, by the file's word and by the names that published models use.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// Whether a token steers the model and is no text (control and unknown tokens). False outside the vocabulary.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.vocab.kind(id).is_special()
    }

    /// Whether `add_special` puts [`Tokenizer::bos`] before a text.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether `add_special` puts [`Tokenizer::eos`] after a text.
    #[must_use]
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// The chat templates that came with the model, the one named `default` first.
    #[must_use]
    pub fn templates(&self) -> &[NamedTemplate] {
        &self.templates
    }

    /// The model's chat template of this name (`None`: the default one), compiled; `None` where the model has none.
    ///
    /// # Errors
    /// [`Error::Template`] where the template does not compile.
    pub fn chat_template(&self, name: Option<&str>) -> Result<Option<ChatTemplate>> {
        let found = match name {
            Some(name) => self.templates.iter().find(|template| template.name == name),
            None => self.templates.first(),
        };
        found.map(|template| ChatTemplate::new(&template.name, &template.source)).transpose()
    }

    /// What was odd in the model's files but did not stop them from being read, a line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The text of a token, for templates: empty where there is none.
    #[must_use]
    pub fn token_text(&self, id: Option<u32>) -> String {
        id.map(|id| String::from_utf8_lossy(&self.vocab.piece(id)).into_owned()).unwrap_or_default()
    }
}

/// Puts the template named `default` first.
pub(crate) fn default_first(templates: &mut [NamedTemplate]) {
    templates.sort_by_key(|template| template.name != "default");
}
