//! MBJS: the models and weight files of the npm package `@seanhogg/builderforce-memory-engine`.
//!
//! A model is a schedule of Mamba-1, Mamba-2, Mamba-3 and attention layers, which a [`Config`] describes. A file holds
//! the layers' types, the sizes of the parameters and their values, and neither shapes nor names.

mod config;
mod init;
mod parameters;
mod random;
mod settings;

pub use config::{AttentionConfig, Config, LayerConfig, LayerKind, Mamba1Config, SsdConfig};
pub use init::initial;
pub use parameters::{Init, Parameter};
pub use random::{Lcg, seed_of};
