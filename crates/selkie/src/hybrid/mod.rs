//! The npm package's hybrids with the package's verbs: built from a configuration, run, exported, imported.

mod config;
mod sampling;
#[cfg(test)]
mod tests;

use std::{io::Write, rc::Rc};

use selkie_formats::{
    Checkpoint, MemorySource,
    mbjs::{self, Config, MbjsOptions},
};
use serde_json::Value;

use crate::{Error, Model, ModelFiles, OpenOptions, Opened, Result, block_on, sampling::sample};

pub use config::{HybridConfig, HybridLayer};
pub use sampling::{HybridSampling, random_seed};

/// A hybrid of state-space layers and attention, as the npm package `@seanhogg/builderforce-memory-engine` has it.
///
/// It is a [`Model`] that knows its configuration and can give and take its weights; sessions, states and batches are the
/// model's ([`model`](Self::model)).
///
/// ```
/// use selkie::{HybridConfig, HybridLayer, HybridSampling, OpenOptions, formats::mbjs::MbjsOptions};
///
/// let layers = [HybridLayer::mamba2(), HybridLayer::attention().n_heads(2)];
/// let config = HybridConfig::new(96, 32, layers).seed(52);
/// let mut model = config.build(&OpenOptions { exact: true, ..OpenOptions::default() })?;
///
/// // Two sequences of three tokens: logits `[2, 3, 96]`.
/// assert_eq!(model.forward(&[1, 2, 3, 4, 5, 6], 2, 3)?.len(), 2 * 3 * 96);
/// assert_eq!(model.embed(&[1, 2, 3])?.len(), 32);
/// let ids = model.generate(&[1, 2, 3], 8, &HybridSampling { seed: Some(1), ..HybridSampling::default() })?;
/// assert_eq!(ids.len(), 3 + 8);
///
/// // Half precision, and back.
/// let file = model.export(MbjsOptions::F16)?;
/// model.import(file)?;
/// # Ok::<(), selkie::Error>(())
/// ```
pub struct Hybrid {
    config: Config,
    options: OpenOptions,
    seed: Option<u32>,
    model: Model,
}

/// A named parameter with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridParameter {
    /// Its name: `embedding`, `layer0.wInProj`, `final_norm`.
    pub name: String,
    /// Sizes, slowest axis first; a matrix is `[out, in]`.
    pub shape: Vec<usize>,
    /// Its values, row after row, as the file has them.
    pub values: Vec<f32>,
}

impl Hybrid {
    /// A model with fresh weights. They are drawn from `seed`, else the configuration's, else from a random one; equal
    /// seeds give equal bytes, which are the package's.
    ///
    /// # Errors
    /// Where there is no memory for the weights, or the backend is not there.
    pub fn new(config: &Config, seed: Option<u32>, options: &OpenOptions) -> Result<Self> {
        block_on(Self::new_async(config, seed, options))
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As there.
    pub async fn new_async(config: &Config, seed: Option<u32>, options: &OpenOptions) -> Result<Self> {
        let seed = seed.or(config.seed()).unwrap_or_else(|| random_seed() as u32);
        let model = in_memory(Checkpoint::fresh_mbjs(config, seed)?, config, options).await?;
        Ok(Self { config: config.clone(), options: options.clone(), seed: Some(seed), model })
    }

    /// Opens an MBJS file with its configuration beside it, or another file of such a model.
    ///
    /// # Errors
    /// As [`Model::open`], and where the model is another.
    #[cfg(feature = "native")]
    pub fn open(path: &std::path::Path, options: &OpenOptions) -> Result<Self> {
        Self::of(Model::open(path, options)?, options)
    }

    /// A model that is open already.
    ///
    /// # Errors
    /// Where it is no MBJS model.
    pub fn of(model: Model, options: &OpenOptions) -> Result<Self> {
        let config = model.opened().checkpoint.mbjs.clone().ok_or_else(|| {
            let what = format!("a model of the architecture {}, not an MBJS model", model.spec().architecture);
            Error::File { path: model.name().to_owned(), what }
        })?;
        Ok(Self { config, options: options.clone(), seed: None, model })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the weights were drawn from, where they are fresh.
    pub fn seed(&self) -> Option<u32> {
        self.seed
    }

    /// The model itself.
    pub fn model(&mut self) -> &mut Model {
        &mut self.model
    }

    /// The logits of every position, `[batch, seq_len, vocab_size]`, of `batch` sequences one after another.
    ///
    /// # Errors
    /// Where `ids` are not `batch · seq_len`, there are none, or one is outside the vocabulary.
    pub fn forward(&mut self, ids: &[u32], batch: usize, seq_len: usize) -> Result<Vec<f32>> {
        block_on(self.forward_async(ids, batch, seq_len))
    }

    /// As [`forward`](Self::forward).
    ///
    /// # Errors
    /// As there.
    pub async fn forward_async(&mut self, ids: &[u32], batch: usize, seq_len: usize) -> Result<Vec<f32>> {
        if batch.checked_mul(seq_len) != Some(ids.len()) {
            let what = format!("{} ids, but {batch} sequences of {seq_len} are asked for", ids.len());
            return Err(Error::Arguments(what));
        }
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let lists: Vec<Vec<u32>> = ids.chunks(seq_len).map(<[u32]>::to_vec).collect();
        Ok(self.model.batch_logits_async(&lists, usize::MAX).await?.concat())
    }

    /// The mean over positions of the final norm's output, L2-normalised, `[d_model]`; zeros where there are no ids.
    ///
    /// # Errors
    /// Where an id is outside the vocabulary.
    pub fn embed(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        block_on(self.embed_async(ids))
    }

    /// As [`embed`](Self::embed).
    ///
    /// # Errors
    /// As there.
    pub async fn embed_async(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.model.embed_async(ids).await
    }

    /// `prompt` with up to `max_new` ids after it; the configuration's `eosId` ends it, and is the last of them then.
    ///
    /// Each token is computed once, from the states that those before it left: without attention its cost does not depend
    /// on how many they are.
    ///
    /// # Errors
    /// Where the prompt is empty, an id is outside the vocabulary, or options are out of range.
    pub fn generate(&mut self, prompt: &[u32], max_new: usize, sampling: &HybridSampling) -> Result<Vec<u32>> {
        block_on(self.generate_async(prompt, max_new, sampling))
    }

    /// As [`generate`](Self::generate).
    ///
    /// # Errors
    /// As there.
    pub async fn generate_async(
        &mut self,
        prompt: &[u32],
        max_new: usize,
        sampling: &HybridSampling,
    ) -> Result<Vec<u32>> {
        let mut uniforms = sampling.uniforms(prompt.len());
        self.generate_with_async(prompt, max_new, sampling, &mut uniforms).await
    }

    /// As [`generate`](Self::generate), with uniform numbers in `[0, 1)` from `uniforms`: one a token.
    ///
    /// # Errors
    /// As there.
    pub fn generate_with(
        &mut self,
        prompt: &[u32],
        max_new: usize,
        sampling: &HybridSampling,
        uniforms: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<u32>> {
        block_on(self.generate_with_async(prompt, max_new, sampling, uniforms))
    }

    /// As [`generate_with`](Self::generate_with).
    ///
    /// # Errors
    /// As there.
    pub async fn generate_with_async(
        &mut self,
        prompt: &[u32],
        max_new: usize,
        sampling: &HybridSampling,
        uniforms: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<u32>> {
        let params = sampling.params()?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let mut ids = prompt.to_vec();
        let mut session = self.model.session_async(prompt.len().saturating_add(max_new)).await?;
        let mut logits = self.model.feed_async(&mut session, prompt).await?;
        for new in 1..=max_new {
            let id = sample(&logits, &params, &[], uniforms() as f32);
            ids.push(id);
            if self.config.eos_id() == Some(id) || new == max_new {
                break;
            }
            logits = self.model.feed_async(&mut session, &[id]).await?;
            self.model.pause().await;
        }
        Ok(ids)
    }

    /// The parameters, in the order of files. The head's bias, which is zero, is none of them.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn parameters(&self) -> Result<Vec<HybridParameter>> {
        block_on(self.parameters_async())
    }

    /// As [`parameters`](Self::parameters).
    ///
    /// # Errors
    /// As there.
    pub async fn parameters_async(&self) -> Result<Vec<HybridParameter>> {
        let checkpoint = &self.model.opened().checkpoint;
        let mut parameters = vec![];
        for mbjs::Parameter { name, shape, .. } in self.config.parameters() {
            let tensor = checkpoint.load(&name).await?;
            let values = tensor.to_f32().map_err(|error| selkie_formats::Error::Tensor {
                file: checkpoint.name().to_owned(),
                tensor: name.clone(),
                what: error.to_string(),
            })?;
            parameters.push(HybridParameter { name, shape, values });
        }
        Ok(parameters)
    }

    /// The weights as an MBJS file. [`MbjsOptions::default`] is what the package writes, [`MbjsOptions::F16`] what it
    /// writes with `fp16`.
    ///
    /// # Errors
    /// Where a value is too large for f16, or the version cannot hold the schedule.
    pub fn export(&self, options: MbjsOptions) -> Result<Vec<u8>> {
        self.export_to(Vec::new(), options)
    }

    /// As [`export`](Self::export), into `out`.
    ///
    /// # Errors
    /// As there, and where the output fails.
    pub fn export_to<W: Write>(&self, out: W, options: MbjsOptions) -> Result<W> {
        block_on(self.export_to_async(out, options))
    }

    /// As [`export_to`](Self::export_to).
    ///
    /// # Errors
    /// As there.
    pub async fn export_to_async<W: Write>(&self, out: W, options: MbjsOptions) -> Result<W> {
        Ok(mbjs::write(out, &self.config, options, &self.model.opened().checkpoint).await?)
    }

    /// Takes the weights of an MBJS file, of any version, in place of those that are there.
    ///
    /// # Errors
    /// Where it is damaged, or of another schedule or other sizes. The weights are then as before.
    pub fn import(&mut self, file: impl Into<bytes::Bytes>) -> Result<()> {
        block_on(self.import_async(file))
    }

    /// As [`import`](Self::import).
    ///
    /// # Errors
    /// As there.
    pub async fn import_async(&mut self, file: impl Into<bytes::Bytes>) -> Result<()> {
        let source = Rc::new(MemorySource::new("import", file));
        let checkpoint = Checkpoint::open_mbjs(source, &self.config).await?;
        self.model = in_memory(checkpoint, &self.config, &self.options).await?;
        self.seed = None;
        Ok(())
    }
}

/// A model whose weights are in memory.
async fn in_memory(checkpoint: Checkpoint, config: &Config, options: &OpenOptions) -> Result<Model> {
    let files = ModelFiles { name: config.name().to_owned(), ..ModelFiles::default() };
    let config = Some(Value::Object(config.json().clone()));
    Model::from_opened_async(Opened { files, checkpoint, config, text_files: None }, options).await
}
