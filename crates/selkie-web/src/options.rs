//! Settings as JSON brings them.

use std::{ops::ControlFlow, rc::Rc, time::Duration};

use selkie::{
    Backend, GenerateOptions, HybridSampling, OpenOptions, Pace, SamplingParams,
    model_spec::{Stage, Watch},
};
use serde::{Deserialize, de::DeserializeOwned};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};

use crate::{
    error::{Result, Thrown},
    pause::pause,
};

/// How long work goes on before messages are looked at: half of the time in which a stop is to be heard.
const STEP: Duration = Duration::from_millis(50);

#[wasm_bindgen]
extern "C" {
    /// `WasmHooks` of the package.
    #[derive(Clone)]
    pub type Hooks;
    #[wasm_bindgen(method)]
    fn progress(this: &Hooks, stage: &str, done: f64, total: f64);
    #[wasm_bindgen(method)]
    fn stopped(this: &Hooks) -> bool;
}

/// Reads JSON.
pub fn parse<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Thrown::argument(format!("settings: {error}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    Auto,
    WebGpu,
    Cpu,
}

/// `WasmOptions` of the package.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    pub device: Device,
    #[serde(default)]
    pub context: Option<usize>,
    #[serde(default)]
    pub memory: Option<u64>,
    #[serde(default)]
    pub exact: bool,
    /// Whether the page has seen to it that devices come with subgroups.
    #[serde(default)]
    pub subgroups: bool,
    /// Of a fresh hybrid, where its configuration has none.
    #[serde(default)]
    pub seed: Option<u32>,
}

impl Load {
    pub fn open_options(&self, hooks: JsValue) -> OpenOptions {
        let hooks: Hooks = hooks.unchecked_into();
        let watch = Watch::new(move |stage, done, total| {
            let stage = match stage {
                Stage::Load => "load",
                Stage::Compile => "compile",
            };
            hooks.progress(stage, done as f64, total as f64);
            if hooks.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        OpenOptions {
            backend: match self.device {
                Device::Auto => Backend::Auto,
                Device::WebGpu => Backend::Gpu,
                Device::Cpu => Backend::Cpu,
            },
            threads: Some(1),
            exact: self.exact,
            context: self.context,
            streamed: true,
            gpu_memory: self.memory,
            subgroups: self.subgroups,
            watch,
            pace: Some(Pace { step: STEP, pause: Rc::new(pause) }),
            ..OpenOptions::default()
        }
    }
}

/// `WasmGenerate` of the package.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generate {
    max_tokens: usize,
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repetition_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    logit_bias: Vec<(u32, f32)>,
    /// A whole number below 2^53.
    seed: f64,
    stop: Vec<String>,
    ignore_eos: bool,
}

impl From<Generate> for GenerateOptions {
    fn from(g: Generate) -> Self {
        GenerateOptions {
            max_tokens: g.max_tokens,
            sampling: SamplingParams {
                temperature: g.temperature,
                top_k: g.top_k,
                top_p: g.top_p,
                min_p: g.min_p,
                repetition_penalty: g.repetition_penalty,
                frequency_penalty: g.frequency_penalty,
                presence_penalty: g.presence_penalty,
                logit_bias: g.logit_bias,
                ..SamplingParams::default()
            },
            seed: g.seed as u64,
            stop: g.stop,
            ignore_eos: g.ignore_eos,
        }
    }
}

/// Of `hybridGenerate`: the first prototype's options, and its defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HybridGenerate {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    seed: Option<f64>,
}

impl From<HybridGenerate> for HybridSampling {
    fn from(g: HybridGenerate) -> Self {
        let default = HybridSampling::default();
        HybridSampling {
            temperature: g.temperature.unwrap_or(default.temperature),
            top_k: g.top_k.unwrap_or(default.top_k),
            top_p: g.top_p.unwrap_or(default.top_p),
            // The standard library's random numbers are the same each time in a browser.
            seed: Some(g.seed.unwrap_or_else(|| (js_sys::Math::random() * 2f64.powi(53)).floor()) as u64),
        }
    }
}
