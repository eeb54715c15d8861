//! What can be wrong with a tokenizer, a text or a chat template.

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a tokenizer could not be built or used, or a template not be rendered. Each says so in one line that names the thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model names a kind of tokenizer that this crate does not have.
    #[error("tokenizer kind `{model}` is not supported (known: gpt2, llama)")]
    UnknownModel {
        /// The kind, as in `tokenizer.ggml.model`.
        model: String,
    },
    /// A field of the vocabulary contradicts another one.
    #[error("tokenizer: {field}: {what}")]
    Vocabulary {
        /// The field, named as in GGUF without `tokenizer.ggml.`, for example `merges`.
        field: &'static str,
        /// What is wrong, with the value found.
        what: String,
    },
    /// A `tokenizer.json` or `tokenizer_config.json` cannot be read.
    #[error("{file}: {what}")]
    Json {
        /// Which of the files.
        file: &'static str,
        /// What is wrong, on one line.
        what: String,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {size}")]
    UnknownId {
        /// The id that was asked for.
        id: u32,
        /// The number of tokens, ids being `0..size`.
        size: usize,
    },
    /// The text could not be tokenised (only a `tokenizer.json` with rules of its own can refuse a text).
    #[error("text could not be tokenised: {what}")]
    Encode {
        /// The tokenizer's words, on one line.
        what: String,
    },
    /// A chat template does not compile, or fails, or exceeds its budget.
    #[error("chat template `{name}`{}: {what}", Line(*line))]
    Template {
        /// The template's name.
        name: String,
        /// The line of the template, from 1, where known.
        line: Option<usize>,
        /// What is wrong, on one line.
        what: String,
    },
    /// No built-in chat template has this name.
    #[error("no built-in chat template `{name}` (known: {known})")]
    UnknownTemplate {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

impl Error {
    /// A contradiction in the vocabulary's `field`.
    pub(crate) fn vocabulary(field: &'static str, what: impl Into<String>) -> Self {
        Self::Vocabulary { field, what: what.into() }
    }
}

/// Writes `, line N`, or nothing.
struct Line(Option<usize>);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}"),
            None => Ok(()),
        }
    }
}

/// `text` with line ends and tabs as spaces, cut to a length that fits an error message.
pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    line
}
