//! Selkie's GPU executor: a plan, compiled to a table of dispatches, on any device that wgpu reaches.

mod preprocess;
pub mod quant;

pub use preprocess::{Defines, PreprocessError, preprocess};

/// Every shader's text by its path from `src` on.
static SHADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// The text of the shader at `path`, with forward slashes, from `src` on.
pub fn shader_source(path: &str) -> Option<&'static str> {
    SHADERS.iter().find(|shader| shader.0 == path).map(|shader| shader.1)
}
