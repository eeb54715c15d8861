//! MBJS: the models and weight files of the npm package `@seanhogg/builderforce-memory-engine`.
//!
//! A model is a schedule of Mamba-1, Mamba-2, Mamba-3 and attention layers, which a [`Config`] describes. A file holds
//! the layers' types, the sizes of the parameters and their values, and neither shapes nor names:
//! [`Checkpoint::open_mbjs`](crate::Checkpoint::open_mbjs) reads it against a configuration.

mod config;
mod containers;
mod half;
mod init;
mod parameters;
mod random;
mod reader;
mod settings;
mod writer;

pub use config::{AttentionConfig, Config, LayerConfig, LayerKind, Mamba1Config, SsdConfig};
pub use containers::{ARCHITECTURE, gguf_metadata, safetensors_notes};
pub(crate) use containers::{from_gguf, from_notes};
pub use half::truncate_to_f16;
pub use init::initial;
pub use parameters::{Init, Parameter};
pub use random::{Lcg, seed_of};
pub use reader::MbjsFile;
pub use writer::{MbjsOptions, MbjsWriter, write};

/// What an MBJS file begins with.
pub const MAGIC: [u8; 4] = *b"SJBM";

/// What the checksum of a file stands behind, at its very end.
const TRAILER: &[u8] = b"EVCR";

/// Length of [`TRAILER`] and the checksum.
const TRAILER_LEN: u64 = 8;
