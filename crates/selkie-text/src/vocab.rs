//! The tokens of a model: their bytes, what kind each is, and which of them end a turn.

use std::borrow::Cow;

use crate::bytes::fallback_byte;

/// The word separator of SentencePiece, which stands for a space.
pub(crate) const WORD_MARK: &str = "▁";

/// What a token is: a set of flags. No flag: an ordinary piece of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kind(u8);

impl Kind {
    pub(crate) const NORMAL: Self = Self(0);
    /// Steers the model and is not text, such as the start of a turn.
    pub(crate) const CONTROL: Self = Self(1);
    /// Stands for what the vocabulary cannot say.
    pub(crate) const UNKNOWN: Self = Self(2);
    /// Text that is always matched as a whole.
    pub(crate) const USER_DEFINED: Self = Self(4);
    /// One byte, written `<0x0A>`.
    pub(crate) const BYTE: Self = Self(8);
    /// Padding of the vocabulary.
    pub(crate) const UNUSED: Self = Self(16);

    /// The kind that a number in `tokenizer.ggml.token_type` means. `None` for numbers that mean nothing.
    pub(crate) fn from_gguf(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            // 0 says "undefined"; llama.cpp writes nothing for such a token either.
            0 | 5 => Self::UNUSED,
            6 => Self::BYTE,
            _ => return None,
        })
    }

    /// Whether any of `kinds` applies.
    pub(crate) fn is(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }

    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Left out where special tokens are to be skipped.
    pub(crate) fn is_special(self) -> bool {
        self.is(Self::CONTROL.and(Self::UNKNOWN))
    }

    /// Looked for in a text as it stands.
    pub(crate) fn is_matched(self) -> bool {
        self.is(Self::CONTROL.and(Self::UNKNOWN).and(Self::USER_DEFINED))
    }
}

/// How an ordinary token's text relates to the bytes it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spelling {
    /// It is them.
    Bytes,
    /// `▁` is a space.
    WordMarks,
}

/// All tokens, in one block of bytes.
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    /// Where each token starts in `bytes`, and the end.
    starts: Vec<u32>,
    kinds: Vec<Kind>,
    spelling: Spelling,
}

impl Vocab {
    /// An empty vocabulary with room for `tokens` tokens of `bytes` bytes in all.
    pub(crate) fn with_capacity(spelling: Spelling, tokens: usize, bytes: usize) -> Self {
        let mut starts = Vec::with_capacity(tokens + 1);
        starts.push(0);
        Self { bytes: Vec::with_capacity(bytes), starts, kinds: Vec::with_capacity(tokens), spelling }
    }

    /// Adds a token whose text is appended to the block by `write`.
    pub(crate) fn push(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.starts.push(self.bytes.len() as u32);
        self.kinds.push(kind);
    }

    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The stored text of a token. Empty for an id that does not exist.
    pub(crate) fn text(&self, id: u32) -> &[u8] {
        let at = id as usize;
        match self.starts.get(at..at + 2) {
            Some(&[start, end]) => &self.bytes[start as usize..end as usize],
            _ => &[],
        }
    }

    /// What a token is. Ordinary for an id that does not exist.
    pub(crate) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or_default()
    }

    /// Makes a token what the file does not say it is.
    pub(crate) fn set_kind(&mut self, id: u32, kind: Kind) {
        if let Some(place) = self.kinds.get_mut(id as usize) {
            *place = kind;
        }
    }

    /// All ids.
    pub(crate) fn ids(&self) -> std::ops::Range<u32> {
        0..self.kinds.len() as u32
    }

    /// The bytes that a token stands for, special ones written out.
    pub(crate) fn piece(&self, id: u32) -> Cow<'_, [u8]> {
        let (text, kind) = (self.text(id), self.kind(id));
        if kind.is_matched() {
            Cow::Borrowed(text)
        } else if kind.is(Kind::BYTE) {
            Cow::Owned(fallback_byte(text).into_iter().collect())
        } else if kind.is(Kind::UNUSED) {
            Cow::Borrowed(&[])
        } else if self.spelling == Spelling::WordMarks && text.windows(3).any(|at| at == WORD_MARK.as_bytes()) {
            Cow::Owned(replace(text, WORD_MARK.as_bytes(), b" "))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// Every token that ends a turn or a text, ascending: those in `known`, and those that published models name so.
    ///
    /// Such a token is a control token, whatever the file says. In the harmony format a message ends with `<|end|>` but
    /// a turn only with `<|return|>` or `<|call|>`, so there `<|end|>` is text to the caller.
    pub(crate) fn end_tokens(&mut self, known: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut ends: Vec<u32> = known.into_iter().collect();
        // Names are short: most tokens are settled by their first byte and length.
        let candidates: Vec<u32> = self.ids().filter(|&id| may_be_a_mark(self.text(id))).collect();
        let named = |name: &str| candidates.iter().copied().find(|&id| self.text(id) == name.as_bytes());
        let found: Vec<u32> = END_NAMES.iter().filter_map(|name| named(name)).collect();
        let harmony = named("<|return|>").is_some() && named("<|call|>").is_some();
        let parts: Vec<u32> = HARMONY_PARTS.iter().filter(|_| harmony).filter_map(|name| named(name)).collect();
        for &id in &found {
            self.set_kind(id, self.kind(id).and(Kind::CONTROL));
        }
        ends.extend(found);
        for id in parts {
            ends.retain(|&end| end != id);
            self.set_kind(id, Kind::USER_DEFINED);
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

/// Whether `text` may be one of the names below.
fn may_be_a_mark(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'<' | b'[' | b'_')) && matches!(text.last(), Some(b'>' | b']' | b'['))
}

/// What published models call the tokens after which they have nothing more to say: the list is llama.cpp's for "end of
/// generation". The last ones separate files in code models.
const END_NAMES: [&str; 32] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Marks inside a turn of the harmony format, which a reader of the text has to see.
const HARMONY_PARTS: [&str; 5] = ["<|end|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// `text` with every `from`, which is not empty, replaced.
pub(crate) fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}
