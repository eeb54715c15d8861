//! Families: one file turns one kind of checkpoint into a [`ModelSpec`].
//!
//! A family states what its published models have in common and differ in; what transformers share is read by
//! `decoder`, settings and tensors go by GGUF's short names in either format.

mod bamba;
mod decoder;
mod deepseek_v2;
mod deepseek_v3;
mod export;
mod falcon_h1;
mod gemma2;
mod gemma3;
mod gpt_oss;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod jamba;
mod latent;
mod lfm2;
mod llama;
mod mamba;
mod mamba2;
mod mamba3;
mod mbjs;
mod mistral;
mod mixture;
mod nemotron_h;
mod olmo2;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod qwen3_next;
mod recurrent;
mod rope;
mod settings;
mod smollm3;
mod state_spaces;
mod tensors;
mod zamba2;

use selkie_formats::Checkpoint;
use serde_json::Value;

use crate::{Error, ModelSpec, Result};
pub use export::{GgufModel, GgufTensor, GgufValues, to_gguf};
use settings::Settings;

/// A family: what files call it, and how it is read.
struct Family {
    /// `general.architecture` in GGUF files.
    gguf: &'static [&'static str],
    /// `model_type` in configurations.
    model_types: &'static [&'static str],
    read: for<'a> fn(Settings<'a>, &'a Checkpoint) -> Result<ModelSpec>,
}

const FAMILIES: &[Family] = &[
    Family { gguf: &["llama"], model_types: &["llama", "mixtral"], read: llama::read },
    Family { gguf: &["mistral"], model_types: &["mistral"], read: mistral::read },
    Family { gguf: &["qwen2"], model_types: &["qwen2"], read: qwen2::read },
    Family { gguf: &["qwen3"], model_types: &["qwen3"], read: qwen3::read },
    Family { gguf: &["gemma2"], model_types: &["gemma2"], read: gemma2::read },
    Family { gguf: &["gemma3"], model_types: &["gemma3_text", "gemma3"], read: gemma3::read },
    Family { gguf: &["phi3"], model_types: &["phi3"], read: phi3::read },
    Family { gguf: &["olmo2"], model_types: &["olmo2"], read: olmo2::read },
    Family { gguf: &["smollm3"], model_types: &["smollm3"], read: smollm3::read },
    Family { gguf: &["mamba"], model_types: &["mamba", "falcon_mamba"], read: mamba::read },
    Family { gguf: &["mamba2"], model_types: &["mamba2"], read: mamba2::read },
    Family { gguf: &["mamba3", "mamba3hybrid"], model_types: &[], read: mamba3::read },
    Family { gguf: &[], model_types: &[settings::MAMBA_SSM], read: state_spaces::read },
    Family { gguf: &["jamba"], model_types: &["jamba"], read: jamba::read },
    Family { gguf: &[], model_types: &["bamba"], read: bamba::read },
    Family { gguf: &["lfm2", "lfm2moe"], model_types: &["lfm2", "lfm2_moe"], read: lfm2::read },
    Family { gguf: &["nemotron_h", "nemotron_h_moe"], model_types: &["nemotron_h"], read: nemotron_h::read },
    Family { gguf: &["falcon-h1"], model_types: &["falcon_h1"], read: falcon_h1::read },
    Family { gguf: &[], model_types: &["zamba2"], read: zamba2::read },
    Family { gguf: &["qwen3next"], model_types: &["qwen3_next"], read: qwen3_next::read },
    Family { gguf: &["granitehybrid"], model_types: &["granitemoehybrid"], read: granitemoehybrid::read },
    Family { gguf: &["granite"], model_types: &["granite"], read: granite::read },
    Family { gguf: &["granitemoe"], model_types: &["granitemoe", "granitemoeshared"], read: granitemoe::read },
    Family { gguf: &["qwen2moe"], model_types: &["qwen2_moe"], read: qwen2_moe::read },
    Family { gguf: &["qwen3moe"], model_types: &["qwen3_moe"], read: qwen3_moe::read },
    Family { gguf: &["deepseek2"], model_types: &["deepseek_v2"], read: deepseek_v2::read },
    Family { gguf: &[], model_types: &["deepseek_v3"], read: deepseek_v3::read },
    Family { gguf: &["gpt-oss"], model_types: &["gpt_oss"], read: gpt_oss::read },
    Family { gguf: &["olmoe"], model_types: &["olmoe"], read: olmoe::read },
];

/// Reads the schedule of a checkpoint; `config` is its `config.json`, which GGUF files do without.
///
/// # Errors
/// Where the family is not known, a setting is missing or senseless, or a tensor is missing or of another shape.
pub fn read(checkpoint: &Checkpoint, config: Option<&Value>) -> Result<ModelSpec> {
    if let Some(config) = &checkpoint.mbjs {
        return mbjs::read(config, checkpoint);
    }
    let settings = Settings::new(checkpoint, config)?;
    (family(&settings)?.read)(settings, checkpoint)
}

/// The family that the settings name.
fn family(settings: &Settings<'_>) -> Result<&'static Family> {
    let architecture = settings.architecture();
    let names = |family: &Family| if settings.is_gguf() { family.gguf } else { family.model_types };
    FAMILIES.iter().find(|family| names(family).contains(&architecture)).ok_or_else(|| {
        let known: Vec<&str> = FAMILIES.iter().flat_map(|family| names(family).iter().copied()).collect();
        Error::UnknownFamily(architecture.to_owned(), known.join(", "))
    })
}
