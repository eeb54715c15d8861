//! From a model's name to files on disk: names, downloads, the caches they live in.
//!
//! A MODEL argument is resolved by [`resolve()`] into a [`ModelRef`], and [`fetch()`] makes sure that its files are here:
//!
//! ```no_run
//! # #[cfg(feature = "download")] {
//! use selkie::models::{self, FetchOptions, Quiet};
//!
//! let model = models::resolve("smollm2")?;
//! let path = models::fetch(&model, &FetchOptions::from_env(), &mut Quiet)?;
//! # }
//! # Ok::<(), selkie::models::Error>(())
//! ```
//!
//! Fetching needs the feature `download`, which is on by default; without it (in a browser) the names remain.
//!
//! # Where files live
//!
//! - A **name** (a row of [`table()`]) lives in Selkie's own folder, `$SELKIE_HOME/models/NAME/FILE`. Without
//!   `SELKIE_HOME` that is `$XDG_CACHE_HOME/selkie` or `~/.cache/selkie`, on macOS `~/Library/Caches/selkie`, on Windows
//!   `%LOCALAPPDATA%\selkie`. A copy which another tool has left in the hub's cache is used where it is.
//! - An **`hf:` file** lives in the hub's own cache, `$HF_HOME/hub/models--OWNER--REPO/{blobs,refs,snapshots}`, laid out
//!   as the hub's Python client does it: each finds what the other has fetched. What is there is used without asking the
//!   network whether a branch has moved; [`FetchOptions::refresh`] asks.
//!
//! # How a file arrives
//!
//! Bytes go to a `.part` file beside their final place, are checked (size, SHA-256), flushed to the disk and renamed: a
//! file under its final name is whole. A transfer that breaks leaves the `.part`, from which the next one goes on; a file
//! with the wrong checksum is deleted. A lock file makes a second process wait for the first one's result.

// These pages describe the crate with all its features.
#![cfg_attr(not(feature = "download"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(feature = "download")]
mod download;
mod error;
mod name;
mod progress;
mod table;

#[cfg(feature = "download")]
pub use download::{FetchOptions, LocalModel, Timeouts, fetch, list};
pub use error::{Error, Result};
pub use name::{HubFile, ModelRef, resolve};
pub use progress::{Progress, Quiet};
pub use table::{DEFAULT, ModelEntry, Source, WheelFile, table};
