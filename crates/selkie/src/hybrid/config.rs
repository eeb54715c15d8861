//! A hybrid's configuration, put together in code.

use selkie_formats::mbjs::{Config, LayerKind};
use serde_json::{Map, Value, json};

use crate::{Hybrid, OpenOptions, Result};

/// The settings of a hybrid: sizes, and a schedule of layers. What is not set has the package's default.
///
/// ```
/// use selkie::{HybridConfig, HybridLayer};
///
/// // Mamba-1 alone, and a schedule.
/// let mamba = HybridConfig::mamba(256, 64, 4).d_state(8).config()?;
/// let jamba = HybridConfig::new(256, 64, [HybridLayer::mamba1(), HybridLayer::attention().n_heads(2).ffn(3)]).seed(7);
/// assert_eq!((mamba.layers().len(), jamba.config()?.seed()), (4, Some(7)));
/// # Ok::<(), selkie::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HybridConfig(Map<String, Value>);

/// A layer of a schedule; what it does not set, the model does.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridLayer {
    kind: LayerKind,
    own: Map<String, Value>,
}

/// Setters of one key each.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $key:literal),* $(,)?) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(self, $name: $type) -> Self {
            self.set($key, $name)
        })*
    };
}

impl HybridConfig {
    /// A model of these layers.
    pub fn new(vocab_size: usize, d_model: usize, layers: impl IntoIterator<Item = HybridLayer>) -> Self {
        let layers: Vec<Value> = layers.into_iter().map(HybridLayer::json).collect();
        Self::mamba(vocab_size, d_model, layers.len()).set("layers", layers)
    }

    /// A model of `n_layers` layers of Mamba-1 (the package's `MambaModel`).
    pub fn mamba(vocab_size: usize, d_model: usize, n_layers: usize) -> Self {
        Self(Map::new()).set("vocabSize", vocab_size).set("dModel", d_model).set("numLayers", n_layers)
    }

    setters! {
        /// States a channel; complex ones in Mamba-3. 16 by default.
        d_state: usize => "dState",
        /// Taps of the convolutions. 4 by default.
        d_conv: usize => "dConv",
        /// Inner width over the model's. 2 by default; layers may have broken factors.
        expand: f64 => "expand",
        /// Heads of attention, Mamba-2 and Mamba-3. 4 by default.
        n_heads: usize => "nHeads",
        /// Groups of B and C. 1 by default.
        n_groups: usize => "nGroups",
        /// The id that ends a generated text. None by default.
        eos_id: u32 => "eosId",
        /// What fresh weights are drawn from. Without one, they differ each time.
        seed: u32 => "seed",
    }

    /// Any key of the package's configuration.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// The configuration, complete and checked.
    ///
    /// # Errors
    /// As [`Config::from_json`].
    pub fn config(&self) -> Result<Config> {
        Ok(Config::from_json("hybrid", Value::Object(self.0.clone()))?)
    }

    /// The model with fresh weights.
    ///
    /// # Errors
    /// As [`config`](Self::config) and [`Hybrid::new`].
    pub fn build(&self, options: &OpenOptions) -> Result<Hybrid> {
        Hybrid::new(&self.config()?, None, options)
    }
}

impl HybridLayer {
    /// A layer of that kind.
    pub fn new(kind: LayerKind) -> Self {
        Self { kind, own: Map::new() }
    }

    /// Selective scan.
    pub fn mamba1() -> Self {
        Self::new(LayerKind::Mamba1)
    }

    /// State-space duality.
    pub fn mamba2() -> Self {
        Self::new(LayerKind::Mamba2)
    }

    /// State-space duality with complex states: what the package calls `mamba3`.
    pub fn mamba3() -> Self {
        Self::new(LayerKind::Mamba3)
    }

    /// Attention without positions.
    pub fn attention() -> Self {
        Self::new(LayerKind::Attention)
    }

    setters! {
        /// States a channel.
        d_state: usize => "dState",
        /// Taps of the convolution.
        d_conv: usize => "dConv",
        /// Inner width over the model's.
        expand: f64 => "expand",
        /// Heads.
        n_heads: usize => "nHeads",
        /// Groups of B and C.
        n_groups: usize => "nGroups",
        /// Rank of Mamba-1's projection to time steps.
        dt_rank: usize => "dtRank",
    }

    /// A feed-forward part behind the attention, so many times as wide as the model.
    #[must_use]
    pub fn ffn(self, multiple: usize) -> Self {
        self.set("hasFfn", true).set("ffnMult", multiple)
    }

    /// Any key of the package's configuration of layers.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.own.insert(key.to_owned(), value.into());
        self
    }

    fn json(self) -> Value {
        json!({"type": self.kind.name(), "config": self.own})
    }
}
