//! Models.

use std::ops::ControlFlow;

use js_sys::{Array, Float32Array, Function, Object, Reflect};
use selkie::{Event, GenerateOptions, Hybrid, Model, OpenOptions, SavedState, parse_messages};
use serde_json::{Value, json};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

use crate::{
    error::{Result, Thrown},
    files, info, log,
    options::{Device, Generate, Load, parse},
    session::WasmSession,
};

/// A model that is ready to run.
#[wasm_bindgen]
pub struct WasmModel {
    pub(crate) kind: Kind,
    pub(crate) load: Load,
    pub(crate) fallback: Option<String>,
    pub(crate) id: String,
    /// What the last state that was loaded had kept with it.
    text: Option<Value>,
}

/// A model, which may be a hybrid that gives and takes its weights.
pub(crate) enum Kind {
    Model(Box<Model>),
    Hybrid(Box<Hybrid>),
}

/// What wasm's memory holds at most beside the weights on the CPU: the program, a state, and the page's own.
const BESIDE_WEIGHTS: u64 = 256 << 20;
/// What wasm can address, less what browsers withhold.
const ADDRESSABLE: u64 = 4000 << 20;

impl WasmModel {
    pub(crate) fn model(&mut self) -> &mut Model {
        match &mut self.kind {
            Kind::Model(model) => model,
            Kind::Hybrid(hybrid) => hybrid.model(),
        }
    }

    async fn of(kind: Kind, load: Load) -> Result<Self> {
        let fallback = log::take_last();
        let mut made = Self { kind, load, fallback, id: String::new(), text: None };
        made.id = made.model().id_async().await?.to_owned();
        let on_cpu = made.model().backend() == "cpu";
        match made.load.device {
            Device::Auto if on_cpu => {
                made.fallback.get_or_insert_with(|| "there is no GPU that is more than software".into());
            }
            _ => made.fallback = None,
        }
        Ok(made)
    }
}

#[wasm_bindgen]
impl WasmModel {
    /// Opens a model.
    pub async fn load(files: JsValue, options: String, hooks: JsValue) -> Result<WasmModel> {
        let load: Load = parse(&options)?;
        let options = load.open_options(hooks);
        let opened = files::sources(&files)?.open().await?;
        if load.device == Device::Cpu {
            check_memory(&opened, load.memory)?;
        }
        let is_hybrid = opened.checkpoint.mbjs.is_some();
        let model = Model::from_opened_async(opened, &options).await?;
        let kind = match is_hybrid {
            true => Kind::Hybrid(Box::new(Hybrid::of(model, &unwatched(&options))?)),
            false => Kind::Model(Box::new(model)),
        };
        Self::of(kind, load).await
    }

    /// A hybrid with fresh weights.
    pub async fn create(config: String, options: String, hooks: JsValue) -> Result<WasmModel> {
        let load: Load = parse(&options)?;
        let options = load.open_options(hooks);
        let config = selkie::formats::mbjs::Config::parse("hybrid", config.as_bytes()).map_err(selkie::Error::from)?;
        let random = || (js_sys::Math::random() * f64::from(u32::MAX)) as u32;
        let seed = load.seed.or(config.seed()).unwrap_or_else(random);
        let hybrid = Hybrid::new_async(&config, Some(seed), &unwatched(&options)).await?;
        Self::of(Kind::Hybrid(Box::new(hybrid)), load).await
    }

    /// JSON of `ModelInfo`.
    pub fn info(&mut self) -> Result<String> {
        info::model_info(self)
    }

    /// The ids of a text; `special`: with those with which the model wants a text to begin.
    pub fn tokenize(&mut self, text: &str, special: bool) -> Result<Vec<u32>> {
        Ok(self.model().text().encode(text, special)?)
    }

    /// The text of ids; bytes that are no text become replacement characters.
    pub fn detokenize(&mut self, ids: &[u32]) -> Result<String> {
        let model = self.model();
        let tokenizer = model.text().tokenizer()?;
        let bytes = tokenizer.decode(ids, false).map_err(|error| Thrown::argument(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The prompt of a JSON list of messages.
    #[wasm_bindgen(js_name = chatPrompt)]
    pub fn chat_prompt(&mut self, messages: &str) -> Result<Vec<u32>> {
        let messages: Value = parse(messages)?;
        parse_messages(&json!({ "messages": messages })).map_err(Thrown::argument)?;
        let text = self.model().text();
        let prompt = text.render_chat(&messages, None, true)?;
        Ok(text.encode_prompt(&prompt)?)
    }

    /// A sequence without tokens.
    #[wasm_bindgen(js_name = newSession)]
    pub async fn new_session(&mut self, capacity: usize) -> Result<WasmSession> {
        Ok(WasmSession { session: self.model().session_async(capacity).await? })
    }

    /// Reads what `prompt` has beyond what the session holds, and goes on. JSON of `WasmGenerated`.
    pub async fn generate(
        &mut self,
        session: &mut WasmSession,
        prompt: Vec<u32>,
        options: String,
        on_event: Function,
    ) -> Result<String> {
        let options: GenerateOptions = parse::<Generate>(&options)?.into();
        let mut tell = |event: Event<'_>| {
            let told = match event {
                Event::Prompt { read, of } => {
                    on_event.call3(&JsValue::NULL, &"prompt".into(), &(read as f64).into(), &(of as f64).into())
                }
                Event::Text(text) => on_event.call2(&JsValue::NULL, &"text".into(), &text.into()),
            };
            // Whoever cannot hear wants no more.
            match told.ok().and_then(|go_on| go_on.as_bool()) {
                Some(true) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        let made = self.model().generate_async(&mut session.session, &prompt, &options, &mut tell).await?;
        let timings = made.timings;
        Ok(json!({
            "text": made.text,
            "ids": made.ids,
            "finish": made.finish.name(),
            "promptTokens": timings.prompt_tokens,
            "promptSeconds": timings.prompt.as_secs_f64(),
            "decodedTokens": timings.decoded_tokens,
            "decodeSeconds": timings.decode.as_secs_f64(),
        })
        .to_string())
    }

    /// The mean over positions of the final norm's output, of length 1.
    pub async fn embed(&mut self, ids: Vec<u32>) -> Result<Vec<f32>> {
        Ok(self.model().embed_async(&ids).await?)
    }

    /// The session's state as a file, with JSON that is kept with it.
    #[wasm_bindgen(js_name = saveState)]
    pub async fn save_state(&mut self, session: &WasmSession, text: Option<String>) -> Result<Vec<u8>> {
        let mut saved = self.model().snapshot_async(&session.session).await?;
        saved.text = text.as_deref().map(parse).transpose()?;
        Ok(saved.write(Vec::new())?)
    }

    /// A session that goes on from such a file.
    #[wasm_bindgen(js_name = loadState)]
    pub async fn load_state(&mut self, file: Vec<u8>, capacity: usize) -> Result<WasmSession> {
        let saved = SavedState::read("the saved state", file.into())?;
        let session = self.model().restore_async(&saved, capacity).await?;
        self.text = saved.text;
        Ok(WasmSession { session })
    }

    /// What the last such file had kept with it.
    #[wasm_bindgen(js_name = takeText)]
    pub fn take_text(&mut self) -> Option<String> {
        self.text.take().map(|text| text.to_string())
    }

    /// A list of `Plane`: the arrays of recurrent states.
    pub async fn planes(&mut self, session: &WasmSession) -> Result<Array> {
        let planes = self.model().planes_async(&session.session).await?;
        let list = Array::new();
        for plane in planes {
            let object = Object::new();
            let set = |key: &str, value: &JsValue| drop(Reflect::set(&object, &key.into(), value));
            set("layer", &(plane.layer as f64).into());
            set("name", &plane.name.into());
            set("shape", &plane.shape.iter().map(|&n| JsValue::from(n as f64)).collect::<Array>());
            set("values", &Float32Array::from(plane.values.as_slice()));
            list.push(&object);
        }
        Ok(list)
    }
}

/// Later loads of the same model's weights are nobody's progress.
fn unwatched(options: &OpenOptions) -> OpenOptions {
    OpenOptions { watch: selkie::model_spec::Watch::default(), ..options.clone() }
}

/// On the CPU all weights are in wasm's memory.
fn check_memory(opened: &selkie::Opened, memory: Option<u64>) -> Result<()> {
    let spec = opened.spec()?;
    let weights: u64 = spec.weights.iter().map(|(_, weight)| weight.bytes()).sum();
    let there = memory.unwrap_or(ADDRESSABLE).min(ADDRESSABLE);
    if weights + BESIDE_WEIGHTS > there {
        let mega = |bytes: u64| bytes.div_ceil(1_000_000);
        return Err(Thrown::out_of_memory(format!(
            "the model's weights of {} MB, with {} MB beside them, do not fit into {} MB",
            mega(weights),
            mega(BESIDE_WEIGHTS),
            mega(there)
        )));
    }
    Ok(())
}
