//! Text on its way into a language model and out of it: tokenizers, chat templates, streaming and stop rules.
//!
//! * [`Tokenizer`] turns bytes into ids and back. It is read from the metadata of a GGUF file ([`GgufVocab`]) or from a
//!   `tokenizer.json` ([`HuggingFaceFiles`]).
//! * [`ChatTemplate`] renders a conversation into a prompt by the model's own Jinja.
//! * [`Detokenizer`] gives out text as tokens come, never half a character.
//! * [`StopRules`] say when to stop, by token or by text.
//!
//! ```
//! use selkie_text::{Detokenizer, EncodeOptions, GgufVocab, Tokenizer};
//!
//! let tokenizer = Tokenizer::from_gguf(&GgufVocab {
//!     model: "gpt2",
//!     pre: Some("gpt-2"),
//!     tokens: vec![b"h", b"i", b"hi", b"!"],
//!     merges: vec![b"h i"],
//!     ..GgufVocab::default()
//! })?;
//! let ids = tokenizer.encode(b"hi!", EncodeOptions::default())?;
//! assert_eq!(ids, [2, 3]);
//! let mut stream = Detokenizer::new(&tokenizer, true);
//! assert_eq!(stream.push(2)?, "hi");
//! # Ok::<(), selkie_text::Error>(())
//! ```
//!
//! Nothing here does any I/O, knows the time, or panics on what a file or a user says: see [`Error`].

mod bpe;
mod bytes;
mod chat;
mod detokenize;
mod error;
mod gguf;
mod heap;
mod huggingface;
mod pretokenize;
mod special;
mod spm;
mod stop;
mod text_map;
mod tokenizer;
mod vocab;

pub use chat::{ChatTemplate, CivilTime, RenderInput};
pub use detokenize::Detokenizer;
pub use error::{Error, Result};
pub use gguf::GgufVocab;
pub use huggingface::HuggingFaceFiles;
pub use stop::{StopMatcher, StopRules, StopStep};
pub use tokenizer::{EncodeOptions, NamedTemplate, SpecialIds, Tokenizer};
