//! Errors as JavaScript sees them: an `Error` with a `code` of the package's `ErrorCode`.

use selkie::{formats, model_spec};
use wasm_bindgen::JsValue;

/// A result whose error JavaScript catches.
pub type Result<T> = std::result::Result<T, Thrown>;

/// An error with its code.
#[derive(Debug)]
pub struct Thrown {
    code: &'static str,
    message: String,
}

impl Thrown {
    /// What the page passed makes no sense.
    pub fn argument(message: impl Into<String>) -> Self {
        Self { code: "argument", message: message.into() }
    }

    /// There is no room for it.
    pub fn out_of_memory(message: String) -> Self {
        Self { code: "out-of-memory", message }
    }
}

impl From<Thrown> for JsValue {
    fn from(thrown: Thrown) -> JsValue {
        let error = js_sys::Error::new(&thrown.message);
        // A plain object takes any property.
        let _ = js_sys::Reflect::set(&error, &"code".into(), &thrown.code.into());
        error.into()
    }
}

impl From<selkie::Error> for Thrown {
    fn from(error: selkie::Error) -> Self {
        use selkie::Error as E;
        let code = match &error {
            E::Model(inner) | E::Checkpoint { error: inner, .. } => model_code(inner),
            E::Format(inner) => format_code(inner),
            E::File { .. } | E::SavedState { .. } | E::OtherModel { .. } => "file",
            E::PastContext { .. } | E::PromptTooLong { .. } => "context",
            E::NoTokenizer(_) | E::NoChatTemplate(_) | E::Text { .. } => "unsupported",
            E::Backend(_) => "no-gpu",
            E::EmptyPrompt | E::Sampling(_) | E::Arguments(_) => "argument",
            _ => "internal",
        };
        Self { code, message: crate::files::words_of(&error.to_string()).to_owned() }
    }
}

fn model_code(error: &model_spec::Error) -> &'static str {
    use model_spec::Error as E;
    match error {
        E::Cancelled => "aborted",
        E::Format(error) => format_code(error),
        E::UnknownFamily(..) | E::Setting { .. } | E::MissingTensor(_) | E::Shape { .. } | E::Tensor { .. } => {
            "unsupported"
        }
        E::OutOfMemory(_) => "out-of-memory",
        E::DeviceLost(_) => "device-lost",
        E::Device(_) => "device",
        E::Context { .. } => "context",
        E::TokenId { .. } | E::Batch(_) => "argument",
        E::Snapshot(_) => "file",
        _ => "internal",
    }
}

/// What a source in JavaScript says keeps its own code: see [`files`](crate::files).
fn format_code(error: &formats::Error) -> &'static str {
    match error {
        formats::Error::Read { what, .. } => crate::files::code_of(what),
        _ => "file",
    }
}
