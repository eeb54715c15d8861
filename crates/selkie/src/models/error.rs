//! Why a model is not here.

use std::path::PathBuf;

/// The result of looking for a model or fetching it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be found or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No row of the table has this name.
    #[error("no model is called `{name}`{}", did_you_mean(closest))]
    UnknownName {
        /// What was asked for.
        name: String,
        /// Names that are spelt alike, the closest first; all of them if none is.
        closest: Vec<&'static str>,
    },
    /// A MODEL argument that cannot mean anything.
    #[error("`{spec}`: {what}")]
    Spec {
        /// What was asked for.
        spec: String,
        /// What is wrong with it.
        what: String,
    },
    /// A path where nothing is.
    #[error("{}: no such file or folder", path.display())]
    NoSuchPath {
        /// The path.
        path: PathBuf,
    },
    /// Every source failed.
    #[error(
        "{model} could not be fetched:{}\nA model file that is already here works offline: -m PATH",
        indented(attempts)
    )]
    Unavailable {
        /// The model, as it was asked for.
        model: String,
        /// What became of each source, one line each.
        attempts: Vec<String>,
    },
    /// The disk, not the network: full, read-only, not ours.
    #[error("{}: {what}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What went wrong.
        what: String,
    },
    /// There is no folder to keep models in.
    #[error("no folder to keep models in: {what}")]
    NoHome {
        /// Which settings would give one.
        what: &'static str,
    },
    /// [`Progress::cancelled`](super::Progress::cancelled) said so.
    #[error("{what}: cancelled")]
    Cancelled {
        /// What was being fetched.
        what: String,
    },
}

fn did_you_mean(closest: &[&str]) -> String {
    let other = "or give hf:OWNER/REPO/FILE or a path";
    if closest.is_empty() { format!("; {other}") } else { format!("; did you mean {}? {other}", closest.join(", ")) }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
