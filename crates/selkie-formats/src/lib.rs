//! Model files: GGUF, safetensors and MBJS, and the block formats in which their weights are stored.
//!
//! Nothing here touches a file system: bytes come through a [`ByteSource`], which may be a mapped file, a buffer or a
//! web request. Nothing here panics on what a file says: see [`Error`].

mod checkpoint;
mod config;
mod data;
mod dtype;
mod error;
mod finite;
pub mod gguf;
mod layout;
pub mod mbjs;
pub mod quant;
pub mod safetensors;
mod source;
mod split;
mod tensor;

pub use checkpoint::Checkpoint;
pub use config::{json_f64, parse_lenient_json};
pub use dtype::DType;
pub use error::{Error, Result};
pub use finite::NonFinite;
pub use quant::QuantError;
pub use source::{ByteSource, LocalFuture, MemorySource};
pub use split::{PartName, sibling_names};
pub use tensor::{Tensor, TensorInfo, TensorSpec};
