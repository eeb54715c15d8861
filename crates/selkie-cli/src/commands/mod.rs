//! One file a command: its arguments, and what it does.

pub mod bench;
pub mod chat;
pub mod convert;
pub mod devices;
pub mod embed;
pub mod generate;
pub mod init;
pub mod inspect;
pub mod list;
pub mod logits;
pub mod perplexity;
pub mod plan;
pub mod pull;
pub mod template;
pub mod tokenize;
