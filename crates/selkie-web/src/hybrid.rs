//! What hybrids of the first prototype can beyond other models.

use js_sys::{Array, Float32Array, Object, Reflect};
use selkie::{Hybrid, formats::mbjs::MbjsOptions};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

use crate::{
    error::{Result, Thrown},
    model::{Kind, WasmModel},
    options::{HybridGenerate, parse},
};

impl WasmModel {
    fn hybrid(&mut self) -> Result<&mut Hybrid> {
        match &mut self.kind {
            Kind::Hybrid(hybrid) => Ok(hybrid),
            Kind::Model(model) => Err(Thrown::argument(format!("{} is no MBJS model", model.name()))),
        }
    }
}

#[wasm_bindgen]
impl WasmModel {
    /// Logits `[batch, seq_len, vocab_size]`.
    pub async fn forward(&mut self, ids: Vec<u32>, batch: usize, seq_len: usize) -> Result<Vec<f32>> {
        Ok(self.hybrid()?.forward_async(&ids, batch, seq_len).await?)
    }

    /// `ids` with up to `n` more.
    #[wasm_bindgen(js_name = hybridGenerate)]
    pub async fn hybrid_generate(&mut self, ids: Vec<u32>, n: usize, options: String) -> Result<Vec<u32>> {
        let sampling = parse::<HybridGenerate>(&options)?.into();
        Ok(self.hybrid()?.generate_async(&ids, n, &sampling).await?)
    }

    /// A list of `{ name, shape, values }`.
    pub async fn parameters(&mut self) -> Result<Array> {
        let list = Array::new();
        for parameter in self.hybrid()?.parameters_async().await? {
            let object = Object::new();
            let set = |key: &str, value: &JsValue| drop(Reflect::set(&object, &key.into(), value));
            set("name", &parameter.name.into());
            set("shape", &parameter.shape.iter().map(|&n| JsValue::from(n as f64)).collect::<Array>());
            set("values", &Float32Array::from(parameter.values.as_slice()));
            list.push(&object);
        }
        Ok(list)
    }

    /// The weights as an MBJS file.
    #[wasm_bindgen(js_name = exportMbjs)]
    pub async fn export_mbjs(&mut self, fp16: bool, trailer: bool) -> Result<Vec<u8>> {
        let options = if fp16 { MbjsOptions::F16 } else { MbjsOptions::default() };
        Ok(self.hybrid()?.export_to_async(Vec::new(), MbjsOptions { trailer, ..options }).await?)
    }

    /// Takes the weights of an MBJS file.
    #[wasm_bindgen(js_name = importMbjs)]
    pub async fn import_mbjs(&mut self, file: Vec<u8>) -> Result<()> {
        Ok(self.hybrid()?.import_async(file).await?)
    }
}
