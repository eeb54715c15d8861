//! Why a model could not be opened or run.

/// The result of working with a model.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be opened or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened.
    #[error("{path}: {what}")]
    File {
        /// The path.
        path: String,
        /// The system's words, or what is missing.
        what: String,
    },
    /// A file is malformed.
    #[error(transparent)]
    Format(#[from] selkie_formats::Error),
    /// A checkpoint is no model that is known here, or the model could not run.
    #[error(transparent)]
    Model(#[from] selkie_model::Error),
    /// As [`Model`](Self::Model), while opening a file.
    #[error("{file}: {error}")]
    Checkpoint {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: selkie_model::Error,
    },
    /// The tokenizer or chat template could not be read, or could not do what was asked.
    #[error("{model}: {error}")]
    Text {
        /// The model.
        model: String,
        /// What is wrong.
        error: selkie_text::Error,
    },
    /// More positions than the model was made for.
    #[error("{model}: {wanted} tokens are asked for, but its context holds {context}")]
    PastContext {
        /// The model.
        model: String,
        /// Positions asked for.
        wanted: usize,
        /// What it was made for.
        context: usize,
    },
    /// The model has no tokenizer, so that it knows ids only.
    #[error("{0} has no tokenizer: only commands that take token ids can use it")]
    NoTokenizer(String),
    /// The model has no chat template.
    #[error("{0} has no chat template: it continues texts (`generate --raw`), but holds no conversations")]
    NoChatTemplate(String),
    /// The prompt is empty.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt does not fit.
    #[error("the prompt has {tokens} tokens, but the context holds {capacity}")]
    PromptTooLong {
        /// Its length.
        tokens: usize,
        /// What there is room for.
        capacity: usize,
    },
    /// A saved state is malformed, or does not fit the model.
    #[error("{file}: {what}")]
    SavedState {
        /// The file that it came from.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A saved state belongs to another model or adapter.
    #[error("{file}: was saved by {kind} {saved}, but {model} is {found}: its state is of no use here")]
    OtherModel {
        /// The file that it came from.
        file: String,
        /// `model` or `adapter`.
        kind: &'static str,
        /// The id in the file.
        saved: String,
        /// What is open.
        model: String,
        /// Its id.
        found: String,
    },
    /// A sampling parameter is out of its range.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::ParamError),
    /// What a function was given makes no sense.
    #[error("{0}")]
    Arguments(String),
    /// The backend that was asked for is not there.
    #[error("{0}")]
    Backend(String),
}

impl Error {
    pub(crate) fn text(model: &str, error: selkie_text::Error) -> Self {
        Error::Text { model: model.to_owned(), error }
    }
}
