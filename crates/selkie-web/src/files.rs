//! A model's files, which JavaScript reads: downloads, files of the page, what the browser keeps.

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use js_sys::{Array, Promise, Reflect, Uint8Array};
use selkie::{
    ModelSources, TextFiles,
    formats::{ByteSource, Error, LocalFuture, Result},
};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// `ByteSource` of the package.
    type JsSource;
    #[wasm_bindgen(method, getter)]
    fn name(this: &JsSource) -> String;
    #[wasm_bindgen(method, getter)]
    fn size(this: &JsSource) -> f64;
    #[wasm_bindgen(method, catch)]
    fn read(this: &JsSource, start: f64, end: f64) -> std::result::Result<Promise, JsValue>;
}

struct Source {
    name: String,
    len: u64,
    js: JsSource,
}

impl ByteSource for Source {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>) -> LocalFuture<'_, Result<Bytes>> {
        Box::pin(async move {
            let error = |thrown: JsValue| Error::Read { file: self.name.clone(), what: words(&thrown) };
            if range.start > range.end || range.end > self.len {
                return Err(Error::PastEnd { file: self.name.clone(), range, len: self.len });
            }
            // Below 2^53 a double holds any whole number.
            let promise = self.js.read(range.start as f64, range.end as f64).map_err(error)?;
            let read = JsFuture::from(promise).await.map_err(error)?;
            let read: Uint8Array = read.dyn_into().map_err(|_| error("no Uint8Array came".into()))?;
            Ok(Bytes::from(read.to_vec()))
        })
    }
}

/// Between an error's code and its words, where the source gave it one. It does not occur in either.
const CODE_END: char = '\u{1f}';

/// The words of what JavaScript threw, behind its code if it has one.
fn words(thrown: &JsValue) -> String {
    let text = |key: &str| Reflect::get(thrown, &key.into()).ok().and_then(|value| value.as_string());
    let message = text("message").or_else(|| thrown.as_string()).unwrap_or_else(|| format!("{thrown:?}"));
    match text("code") {
        Some(code) => format!("{code}{CODE_END}{message}"),
        None => message,
    }
}

/// The code in an error's words.
pub fn code_of(what: &str) -> &'static str {
    let known = ["aborted", "network", "not-found", "file", "storage", "out-of-memory", "argument"];
    let code = what.split_once(CODE_END).map_or("file", |(code, _)| code);
    known.into_iter().find(|known| *known == code).unwrap_or("file")
}

/// The words of an error that may have come from a source: these name the file themselves.
pub fn words_of(message: &str) -> &str {
    message.split_once(CODE_END).map_or(message, |(_, words)| words)
}

/// `WasmFiles` of the package.
pub fn sources(files: &JsValue) -> crate::error::Result<ModelSources> {
    let get =
        |key: &str| Reflect::get(files, &key.into()).ok().filter(|value| !value.is_undefined() && !value.is_null());
    let bytes = |key: &str| get(key).and_then(|value| value.dyn_into::<Uint8Array>().ok()).map(|array| array.to_vec());
    let name = get("name").and_then(|name| name.as_string()).unwrap_or_else(|| "model".into());
    let listed = get("weights").and_then(|list| list.dyn_into::<Array>().ok());
    let listed = listed.ok_or_else(|| crate::error::Thrown::argument("there are no files with weights"))?;
    let weights = listed.iter().map(|js| {
        let js: JsSource = js.unchecked_into();
        Rc::new(Source { name: js.name(), len: js.size() as u64, js }) as Rc<dyn ByteSource>
    });
    let named = |file: &str, key: &str| bytes(key).map(|bytes| (format!("{file} of {name}"), bytes));
    let text_files = bytes("tokenizer").map(|tokenizer| TextFiles {
        tokenizer,
        config: bytes("tokenizerConfig"),
        chat_template: bytes("chatTemplate"),
    });
    Ok(ModelSources {
        weights: weights.collect(),
        index: named("model.safetensors.index.json", "index"),
        config: named("config.json", "config"),
        text_files,
        name,
    })
}
