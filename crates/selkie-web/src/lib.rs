//! What the worker of the npm package `selkie-web` sees of Selkie: models, their sessions and states, hybrids.
//!
//! Settings and results that are no arrays pass as JSON, whose types `web/src/wasm.ts` has. Errors are JavaScript `Error`s
//! with a `code`. Work is asynchronous throughout: a page that says stop is heard between any two submits.

#![cfg(target_arch = "wasm32")]

mod checks;
mod error;
mod files;
mod hybrid;
mod info;
mod log;
mod model;
mod options;
mod pause;
mod session;

pub use info::device_report;
pub use model::WasmModel;
pub use session::WasmSession;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(start)]
fn start() {
    log::install();
}
