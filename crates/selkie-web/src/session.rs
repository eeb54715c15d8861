//! Sessions.

use selkie::Session;
use wasm_bindgen::prelude::wasm_bindgen;

/// A sequence of tokens and the state that they left.
#[wasm_bindgen]
pub struct WasmSession {
    pub(crate) session: Session,
}

#[wasm_bindgen]
impl WasmSession {
    /// Positions that the state holds.
    pub fn length(&self) -> usize {
        self.session.len()
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.session.capacity()
    }

    /// The tokens that the state holds, as far as they are known.
    pub fn tokens(&self) -> Vec<u32> {
        self.session.tokens().to_vec()
    }

    /// A copy: what happens to one no longer touches the other.
    pub fn fork(&self) -> WasmSession {
        WasmSession { session: self.session.fork() }
    }
}
