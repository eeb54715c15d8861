//! Selkie runs language models: it turns a model's name into files, files into a model, and a conversation's state into
//! a value.
//!
//! ```no_run
//! use selkie::{Event, GenerateOptions, Model, OpenOptions};
//!
//! # fn main() -> Result<(), selkie::Error> {
//! let mut model = Model::open("SmolLM2-135M-Instruct.Q4_1.gguf".as_ref(), &OpenOptions::default())?;
//! let prompt = model.text().encode("The sea is", true)?;
//! let mut session = model.session(prompt.len() + 32)?;
//! let options = GenerateOptions { max_tokens: 32, ..GenerateOptions::default() };
//! let generated = model.generate(&mut session, &prompt, &options, &mut |event| {
//!     if let Event::Text(text) = event {
//!         print!("{text}");
//!     }
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! println!("\n{:?} after {} tokens", generated.finish, generated.ids.len());
//! # Ok(())
//! # }
//! ```

mod backend;
mod chat;
mod check;
pub mod convert;
mod error;
mod files;
mod finite;
mod generate;
mod hybrid;
#[cfg(feature = "native")]
mod map;
mod model;
mod model_id;
#[cfg(feature = "download")]
pub mod models;
mod planes;
mod session;
mod state_file;
mod text_side;
mod tokens;

pub use backend::Backend;
pub use chat::{Chat, Message, messages_json, parse_messages};
pub use check::Check;
pub use error::{Error, Result};
pub use files::{ModelFiles, ModelSources, Opened, TextFiles};
pub use generate::{Event, Finish, GenerateOptions, Generated, OnEvent, Timings};
pub use hybrid::{Hybrid, HybridConfig, HybridLayer, HybridParameter, HybridSampling, random_seed};
#[cfg(feature = "native")]
pub use map::MappedFile;
pub use model::{Model, OpenOptions, Pace};
pub use planes::StatePlane;
pub use session::Session;
pub use state_file::SavedState;
pub use text_side::TextSide;
pub use tokens::TokenHash;

pub use pollster::block_on;
pub use selkie_cpu as cpu;
pub use selkie_formats as formats;
#[cfg(feature = "gpu")]
pub use selkie_gpu as gpu;
pub use selkie_model as model_spec;
pub use selkie_model::sampling::{self, SamplingParams};
pub use selkie_text as text;
