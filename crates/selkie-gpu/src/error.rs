//! What can go wrong on a GPU.

use crate::{
    memory::{Memory, Size},
    preprocess::PreprocessError,
};

/// What went wrong, with the kernel, buffer or device that it happened to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to run on.
    #[error("no GPU was found{}", advice(.0))]
    NoAdapter(String),
    /// The device that was asked for is not there.
    #[error("no GPU is called {wanted:?}; there are: {}", .found.join(", "))]
    NoSuchDevice {
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: Vec<String>,
    },
    /// The device cannot be opened.
    #[error("{device} cannot be opened: {what}")]
    Open {
        /// Its name.
        device: String,
        /// Why.
        what: String,
    },
    /// A kernel cannot be made, or failed.
    #[error("kernel {kernel}: {what}")]
    Kernel {
        /// Its name, with its defines.
        kernel: String,
        /// Why.
        what: String,
    },
    /// A shader's text is wrong.
    #[error("shader {0}")]
    Shader(#[from] PreprocessError),
    /// More memory is needed than there is.
    #[error("{what} of {} MB does not fit on {device}{}", mega(*bytes), advice(.hint))]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much.
        bytes: u64,
        /// The device.
        device: String,
        /// What would help.
        hint: String,
    },
    /// A model does not fit; nothing of it is left on the device.
    #[error("the model needs {needed}, which {device} has no room for{}; quantised weights or a shorter context need less", of(*there, *taken))]
    NoRoom {
        /// What it needs.
        needed: Memory,
        /// The device.
        device: String,
        /// How much memory the device says that it has.
        there: Option<u64>,
        /// How much of it was taken before.
        taken: u64,
    },
    /// Something is larger than the device allows.
    #[error("{what} needs {wanted} bytes, and {device} allows {limit}{}", advice(.hint))]
    Limit {
        /// What.
        what: String,
        /// How much it needs.
        wanted: u64,
        /// How much there may be.
        limit: u64,
        /// The device.
        device: String,
        /// What would help.
        hint: String,
    },
    /// The device is gone; whoever opens the model anew gets it back, or another.
    #[error("the GPU was lost: {0}")]
    Lost(String),
    /// An error that came while commands ran.
    #[error("the GPU reported: {0}")]
    Reported(String),
    /// Kernels do not do what they should on this device.
    #[error("the self-test failed: {0}")]
    SelfTest(String),
    /// Weights cannot be read.
    #[error(transparent)]
    Weights(Box<selkie_model::Error>),
    /// Whoever watched the load said to stop.
    #[error("the load was cancelled")]
    Cancelled,
    /// A plan that this executor cannot run.
    #[error("op {op}: {what}")]
    Op {
        /// Its name.
        op: String,
        /// Why.
        what: String,
    },
}

fn advice(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; {text}") }
}

fn of(there: Option<u64>, taken: u64) -> String {
    let Some(there) = there else { return String::new() };
    let used = if taken > 0 { format!(", {} of them taken", Size(taken)) } else { String::new() };
    format!(": it has {}{used}", Size(there))
}

fn mega(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Of weights as they are read, and of whoever watches a load.
impl From<selkie_model::Error> for Error {
    fn from(error: selkie_model::Error) -> Self {
        match error {
            selkie_model::Error::Cancelled => Error::Cancelled,
            error => Error::Weights(Box::new(error)),
        }
    }
}

impl From<Error> for selkie_model::Error {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Weights(error) => *error,
            Error::Cancelled => selkie_model::Error::Cancelled,
            Error::Lost(_) => selkie_model::Error::DeviceLost(text),
            Error::OutOfMemory { .. } | Error::NoRoom { .. } => selkie_model::Error::OutOfMemory(text),
            _ => selkie_model::Error::Device(text),
        }
    }
}
