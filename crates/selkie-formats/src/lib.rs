//! Model files: GGUF and safetensors, and the block formats in which their weights are stored.
//!
//! Nothing here touches a file system: bytes come through a [`ByteSource`], which may be a mapped file, a buffer or a
//! web request. Nothing here panics on what a file says: see [`Error`].

mod data;
mod dtype;
mod error;
pub mod gguf;
mod layout;
pub mod quant;
mod source;
mod tensor;

pub use dtype::DType;
pub use error::{Error, Result};
pub use quant::QuantError;
pub use source::{ByteSource, LocalFuture, MemorySource};
pub use tensor::{Tensor, TensorInfo, TensorSpec};
