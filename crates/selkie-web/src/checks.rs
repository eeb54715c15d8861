//! The conformance view: what the executor computes in this browser, against the reference.

use selkie::Check;
use serde_json::{Value, json};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{error::Result, model::WasmModel};

#[wasm_bindgen]
impl WasmModel {
    /// JSON of `MatrixInfo[]`.
    pub fn matrices(&mut self) -> String {
        let matrices = self.model().matrices();
        let info = |(name, shape, dtype)| json!({ "name": name, "shape": shape, "type": format!("{dtype}") });
        matrices.into_iter().map(info).collect::<Value>().to_string()
    }

    /// JSON of `Check[]`: the kernels', or a matrix's.
    pub async fn check(&mut self, matrix: Option<String>) -> Result<String> {
        let checks = match matrix {
            Some(name) => self.model().check_matrix(&name).await?,
            None => self.model().check_kernels().await?,
        };
        let json = |check: Check| {
            json!({
                "name": check.name,
                // Not a number where nothing came.
                "error": if check.error.is_nan() { 1e30 } else { check.error },
                "tolerance": check.tolerance,
                "ok": check.ok(),
                "milliseconds": check.time.as_secs_f64() * 1e3,
                "detail": "root mean square of the difference by that of the f64 reference",
            })
        };
        Ok(checks.into_iter().map(json).collect::<Value>().to_string())
    }
}
