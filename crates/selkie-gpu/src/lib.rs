//! Selkie's GPU executor: a plan, compiled to a table of dispatches, on any device that wgpu reaches.
//!
//! [`Gpu`] is a device; [`GpuExecutor`] a model on it. A plan is [lowered](lower), gets places for its values and a table of
//! dispatches ([`compile`]), and the table's kernels are shaders under `kernels/`, written once over block formats (`quant/`)
//! and flavours by a small [preprocessor](preprocess()).

// In a browser, where there is one thread, wgpu's handles stay on it.
#![cfg_attr(target_arch = "wasm32", allow(clippy::arc_with_non_send_sync))]

pub mod compile;
mod engine;
mod error;
mod executor;
mod gpu;
mod kernels;
pub mod lower;
mod memory;
mod preprocess;
pub mod quant;
mod self_test;
mod state;
pub mod table;
pub mod weights;

pub use engine::{Engine, RunOptions};
pub use error::{Error, Result};
pub use executor::GpuExecutor;
pub use gpu::{Access, Buffer, Counts, Flavours, Found, Gpu, GpuOptions, Limits, Pipeline, Shader, devices};
pub use kernels::Measured;
pub use kernels::sample::shaders as sampling_shaders;
pub use memory::Memory;
pub use preprocess::{Defines, PreprocessError, preprocess};

/// Every shader's text by its path from `src` on.
static SHADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// The text of the shader at `path`, with forward slashes, from `src` on.
pub fn shader_source(path: &str) -> Option<&'static str> {
    SHADERS.iter().find(|shader| shader.0 == path).map(|shader| shader.1)
}
