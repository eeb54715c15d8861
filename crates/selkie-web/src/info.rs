//! What models and devices say of themselves.

use selkie::{
    gpu::{Gpu, GpuOptions},
    model_spec::plan::{Slot, plan},
};
use serde_json::json;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{error::Result, model::WasmModel};

/// JSON of `ModelInfo`.
pub fn model_info(wasm: &mut WasmModel) -> Result<String> {
    let fallback = wasm.fallback.clone();
    let context = wasm.load.context;
    let id = wasm.id.clone();
    let model = wasm.model();
    let spec = model.spec();
    let plan = plan(spec);
    let made_for = spec.context.filter(|&context| context > 0 && spec.has_attention());
    let tokenizer = model.text().tokenizer_if_any()?;
    let has_template = tokenizer.is_some() && model.text().chat_template()?.is_some();
    let checkpoint = &model.opened().checkpoint;
    let bytes: u64 = checkpoint.sources.iter().map(|source| source.len()).sum();
    Ok(json!({
        "name": model.name(),
        "id": id,
        "architecture": spec.architecture,
        "backend": if model.backend() == "gpu" { "webgpu" } else { "cpu" },
        "device": model.device(),
        "fallback": fallback,
        "bytes": bytes,
        "context": context.unwrap_or(CONTEXT).min(made_for.unwrap_or(usize::MAX)),
        "modelContext": made_for,
        "vocabSize": spec.vocab_size,
        "dModel": spec.d_model,
        "layers": plan.layers.len(),
        "schedule": plan.layers,
        "hasChatTemplate": has_template,
        "hasTokenizer": tokenizer.is_some(),
        "recurrent": plan.slots.iter().any(|slot| !matches!(slot, Slot::KvCache { .. })),
        "hybrid": checkpoint.mbjs.is_some(),
    })
    .to_string())
}

/// Positions of a conversation where nobody says.
const CONTEXT: usize = 4096;

/// JSON of `DeviceReport`'s `adapter` and `cpu`.
#[wasm_bindgen(js_name = deviceReport)]
pub async fn device_report(measure: bool, subgroups: bool) -> Result<String> {
    let simd = if cfg!(target_feature = "relaxed-simd") { "relaxed" } else { "simd128" };
    let options = GpuOptions { software: true, subgroups, ..GpuOptions::default() };
    let adapter = match Gpu::open(&options).await {
        Err(selkie::gpu::Error::NoAdapter(_)) => None,
        Err(error) => {
            tracing::warn!("{error}");
            None
        }
        Ok(gpu) => {
            let warn = |error: &_| tracing::warn!("{} cannot be measured: {error}", gpu.name());
            let measured = if measure { gpu.measure().await.inspect_err(warn).ok() } else { None };
            let limits = gpu.limits();
            let flavours = gpu.flavours();
            let mut features = vec![];
            features.extend(flavours.subgroup.map(|n| format!("subgroups of {n}")));
            features.extend(flavours.f16.then(|| "shader-f16".to_owned()));
            features.extend(flavours.packed_dot.then(|| "packed 8-bit dot product".to_owned()));
            Some(json!({
                "name": gpu.name(),
                "software": gpu.is_software(),
                "features": features,
                "limits": {
                    "maxStorageBufferBindingSize": limits.binding,
                    "maxBufferSize": limits.buffer,
                    "maxComputeWorkgroupStorageSize": limits.workgroup_memory,
                    "maxComputeInvocationsPerWorkgroup": limits.invocations,
                    "maxComputeWorkgroupsPerDimension": limits.workgroups,
                    "maxStorageBuffersPerShaderStage": limits.storage_buffers,
                },
                "readBandwidth": measured.map(|m| m.read),
                "dispatchSeconds": measured.map(|m| m.dispatch.as_secs_f64()),
            }))
        }
    };
    Ok(json!({ "adapter": adapter, "cpu": { "simd": simd } }).to_string())
}
