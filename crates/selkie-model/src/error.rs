//! Why a checkpoint is no model, or a model could not run.

/// The result of building or running a model.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be built or run; each variant names what it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    Format(#[from] selkie_formats::Error),
    /// The checkpoint is of a family that is not known here.
    #[error("architecture `{0}` is not supported (known: {1})")]
    UnknownFamily(String, String),
    /// A setting is missing, or its value makes no sense.
    #[error("setting `{key}`: {what}")]
    Setting {
        /// The metadata key or configuration field.
        key: String,
        /// What is wrong, with the value found.
        what: String,
    },
    /// The model cannot be a GGUF file.
    #[error("GGUF cannot express {0}, as far as it is known here")]
    NoGguf(String),
    /// A tensor that the model needs is not in the file.
    #[error("tensor `{0}` is missing")]
    MissingTensor(String),
    /// A tensor has another shape than the configuration asks for.
    #[error("tensor `{tensor}`: shape {found:?} where {wanted:?} is wanted")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// The shape in the file, slowest axis first.
        found: Vec<usize>,
        /// The shape that the configuration asks for.
        wanted: Vec<usize>,
    },
    /// A tensor's values cannot be used as weights.
    #[error("tensor `{tensor}`: {what}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong.
        what: String,
    },
    /// A token id is outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab_size}")]
    TokenId {
        /// The id.
        id: u32,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// A batch is malformed.
    #[error("batch: {0}")]
    Batch(String),
    /// More positions than the state has room for.
    #[error("{wanted} positions are needed, but the context is {capacity} long")]
    Context {
        /// Positions needed.
        wanted: usize,
        /// Positions there are.
        capacity: usize,
    },
    /// A state of another executor or model was passed in.
    #[error("this state belongs to {found}, not to {wanted}")]
    ForeignState {
        /// The executor asked.
        wanted: String,
        /// The executor that made the state.
        found: String,
    },
    /// A recurrent state was asked to go back further than it remembers.
    #[error("cannot rewind by {wanted} positions: the state remembers the last {remembered}")]
    Rewind {
        /// Positions to forget.
        wanted: usize,
        /// Positions that can be forgotten.
        remembered: usize,
    },
    /// A state's recurrent part was half-way through a pass that failed.
    #[error("this state was lost in a pass that failed: begin anew, or restore a saved one")]
    LostState,
    /// A device failed, or cannot do what is asked of it.
    #[error("{0}")]
    Device(String),
    /// A device is gone, and what was on it; whoever opens the model anew gets it back, or another.
    #[error("{0}")]
    DeviceLost(String),
    /// A device has no room for what is asked of it.
    #[error("{0}")]
    OutOfMemory(String),
    /// Whoever watched said to stop.
    #[error("cancelled")]
    Cancelled,
    /// A saved state does not fit the model.
    #[error("saved state: {0}")]
    Snapshot(String),
    /// An operation met shapes that do not go together.
    #[error("op `{op}`: {what}")]
    Op {
        /// The operation as the plan prints it.
        op: String,
        /// Both shapes.
        what: String,
    },
}

impl Error {
    pub(crate) fn setting(key: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Setting { key: key.into(), what: what.into() }
    }
}
