//! What a model is: the package's configuration, its defaults and checks.

use serde_json::{Map, Value};

use super::{
    Parameter, parameters,
    settings::{Scope, Settings},
};
use crate::{Error, Result, parse_lenient_json};

/// The most layers that are believed.
const MAX_LAYERS: u64 = 10_000;

/// The largest size that is believed: no product of two overflows.
pub(super) const MAX_SIZE: u64 = 1 << 24;

/// A model's configuration, complete and checked.
///
/// An MBJS file holds no sizes; this is what it is read against. It is made from the package's own JSON (`vocabSize`,
/// `dModel`, `numLayers`, `layers`, `default…`), which it keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    name: String,
    json: Map<String, Value>,
    vocab_size: usize,
    d_model: usize,
    layers: Vec<LayerConfig>,
    eos_id: Option<u32>,
    seed: Option<u32>,
}

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum LayerKind {
    Mamba1,
    Mamba2,
    /// The package's layer of that name, not the published one: an SSD with complex states.
    Mamba3,
    Attention,
}

/// One row per kind: its name in configurations, and where those hold its defaults. The position is its id in files.
const KINDS: [(LayerKind, &str, &str); 4] = [
    (LayerKind::Mamba1, "mamba1", "defaultMamba1"),
    (LayerKind::Mamba2, "mamba2", "defaultMamba2"),
    (LayerKind::Mamba3, "mamba3", "defaultMamba3"),
    (LayerKind::Attention, "attention", "defaultAttention"),
];

impl LayerKind {
    /// The name in configurations: `mamba1`.
    pub fn name(self) -> &'static str {
        KINDS[usize::from(self.id())].1
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The id in files.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The kind with that id in files; readers take ids that are not known as Mamba-1.
    pub fn from_id(id: u8) -> Self {
        KINDS.get(usize::from(id)).map_or(LayerKind::Mamba1, |row| row.0)
    }

    /// The key of the model's defaults for such layers.
    fn defaults(self) -> &'static str {
        KINDS[usize::from(self.id())].2
    }
}

/// The sizes of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum LayerConfig {
    Mamba1(Mamba1Config),
    Mamba2(SsdConfig),
    /// States are complex: `d_state` counts pairs of numbers.
    Mamba3(SsdConfig),
    Attention(AttentionConfig),
}

impl LayerConfig {
    /// What the layer is.
    pub fn kind(&self) -> LayerKind {
        match self {
            LayerConfig::Mamba1(_) => LayerKind::Mamba1,
            LayerConfig::Mamba2(_) => LayerKind::Mamba2,
            LayerConfig::Mamba3(_) => LayerKind::Mamba3,
            LayerConfig::Attention(_) => LayerKind::Attention,
        }
    }
}

/// The sizes of a Mamba-1 layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mamba1Config {
    /// Channels.
    pub d_inner: usize,
    /// States a channel.
    pub d_state: usize,
    /// Taps of the convolution.
    pub d_conv: usize,
    /// Rank of the projection to `dt`.
    pub dt_rank: usize,
}

/// The sizes of a Mamba-2 or Mamba-3 layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdConfig {
    /// Channels, of all heads together.
    pub d_inner: usize,
    /// States a channel; complex ones in Mamba-3.
    pub d_state: usize,
    /// Taps of the convolution.
    pub d_conv: usize,
    /// Heads; they divide `d_inner`.
    pub n_heads: usize,
    /// Groups of B and C, at most as many as heads; they need not divide those: head h has group `floor(h·G/H)`.
    pub n_groups: usize,
}

impl SsdConfig {
    /// Channels a head.
    pub fn head_dim(&self) -> usize {
        self.d_inner / self.n_heads
    }
}

/// The sizes of an attention layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionConfig {
    /// Heads; they divide `d_model`.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward part, where there is one.
    pub d_ff: Option<usize>,
}

impl Config {
    /// Reads a configuration file; the configuration may stand at its top or under a key `model`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json), and where it is not JSON.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        Self::from_json(file, parse_lenient_json(file, bytes)?)
    }

    /// Reads a configuration, at the top of `json` or under a key `model`. Errors call it `file`. Keys that are not
    /// known are kept and ignored.
    ///
    /// # Errors
    /// [`Error::Key`] where a size is missing or impossible, `layers` is not `numLayers` long, a layer's type is not
    /// known, heads do not divide a width, groups are more than heads, or a parameter would have more values than a
    /// file can count.
    pub fn from_json(file: &str, json: Value) -> Result<Self> {
        let (json, prefix) = take_model(file, json)?;
        let top = Scope { path: prefix, map: &json };
        let model = Settings::new(file, vec![], top.clone());
        let vocab_size = model.needed_size("vocabSize")?;
        let d_model = model.needed_size("dModel")?;
        let layers = layers(file, &top)?;
        let layers: Vec<LayerConfig> = (layers.iter().enumerate())
            .map(|(number, (kind, own))| layer(file, number, *kind, own.clone(), &top, d_model))
            .collect::<Result<_>>()?;
        if parameters::Shape::Matrix(vocab_size as u64, d_model as u64).elements().is_none() {
            let what = format!("an embedding of {vocab_size} by {d_model} is larger than a file can hold");
            return Err(model.error("vocabSize", what));
        }
        let (eos_id, seed) = (model.token("eosId")?, model.seed("seed")?);
        Ok(Self { name: file.to_owned(), vocab_size, d_model, layers, eos_id, seed, json })
    }

    /// Whether `json` looks like such a configuration, at the top or under a key `model`.
    pub fn is_in(json: &Value) -> bool {
        let has = |value: &Value| value.get("vocabSize").is_some() && value.get("dModel").is_some();
        has(json) || json.get("model").is_some_and(has)
    }

    /// What errors call the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configuration as it was given, without what stood around it: [`from_json`](Self::from_json) makes the same
    /// of it.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Rows of the embedding.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Width of the model.
    pub fn d_model(&self) -> usize {
        self.d_model
    }

    /// The layers.
    pub fn layers(&self) -> &[LayerConfig] {
        &self.layers
    }

    /// The id that ends a generated text, where there is one.
    pub fn eos_id(&self) -> Option<u32> {
        self.eos_id
    }

    /// The seed of fresh weights, where there is one.
    pub fn seed(&self) -> Option<u32> {
        self.seed
    }

    /// The parameters, in the order of files.
    pub fn parameters(&self) -> Vec<Parameter> {
        parameters::of_model(self)
    }
}

/// The configuration in `json`, and what the keys in it are to be prefixed with in errors.
fn take_model(file: &str, json: Value) -> Result<(Map<String, Value>, String)> {
    let error = |what: &str| Error::Read { file: file.to_owned(), what: what.to_owned() };
    let Value::Object(mut outer) = json else { return Err(error("a model's configuration is a JSON object")) };
    if outer.contains_key("vocabSize") {
        return Ok((outer, String::new()));
    }
    match outer.remove("model") {
        Some(Value::Object(inner)) => Ok((inner, "model.".to_owned())),
        _ => Ok((outer, String::new())),
    }
}

/// Kind and own settings of each layer.
fn layers<'a>(file: &'a str, model: &Scope<'a>) -> Result<Vec<(LayerKind, Scope<'a>)>> {
    let settings = Settings::new(file, vec![], model.clone());
    let count = settings.needed_size("numLayers")?;
    if count as u64 > MAX_LAYERS {
        return Err(settings.error("numLayers", format!("{count} layers; at most {MAX_LAYERS} are taken")));
    }
    let Some(list) = settings.shared("layers") else {
        return Ok(vec![(LayerKind::Mamba1, Scope::empty()); count]);
    };
    let Value::Array(list) = list.value else {
        return Err(settings.error("layers", "a list of layers wanted".to_owned()));
    };
    if list.len() != count {
        return Err(settings.error("layers", format!("{} layers, but `numLayers` is {count}", list.len())));
    }
    let entry = |(number, entry): (usize, &'a Value)| {
        let path = format!("layers[{number}]");
        let name = match entry.get("type") {
            Some(Value::String(name)) => name,
            Some(other) => return Err(settings.error(&path, format!("its type is {other}, but a name is wanted"))),
            None => return Err(settings.error(&path, "it has no `type`".to_owned())),
        };
        let kind = LayerKind::from_name(name).ok_or_else(|| {
            let known = KINDS.map(|row| row.1).join(", ");
            settings.error(&path, format!("layer {number} is of type `{name}`, which is none of {known}"))
        })?;
        let Value::Object(entry) = entry else { return Err(settings.error(&path, "an object wanted".to_owned())) };
        let scope = Scope { path: format!("{}{path}.", model.path), map: entry };
        Ok((kind, scope.inner(file, "config")?))
    };
    list.iter().enumerate().map(entry).collect()
}

/// The sizes of layer `number`.
fn layer(
    file: &str,
    number: usize,
    kind: LayerKind,
    own: Scope<'_>,
    model: &Scope<'_>,
    d_model: usize,
) -> Result<LayerConfig> {
    let settings = Settings::new(file, vec![own, model.inner(file, kind.defaults())?], model.clone());
    let error = |key: &str, what: String| settings.error(key, format!("layer {number} ({}): {what}", kind.name()));
    let width = settings.size("dModel", d_model)?;
    if width != d_model {
        return Err(error("dModel", format!("a width of {width}, but the model's is {d_model}")));
    }
    let inner = || settings.multiple("expand", 2, d_model);
    let ssd = || {
        let (n_heads, n_groups) = (settings.size("nHeads", 4)?, settings.size("nGroups", 1)?);
        let d_inner = inner()?;
        if !d_inner.is_multiple_of(n_heads) {
            return Err(error("nHeads", format!("{n_heads} heads do not divide the inner width {d_inner}")));
        }
        if n_groups > n_heads {
            return Err(error("nGroups", format!("{n_groups} groups, but only {n_heads} heads")));
        }
        let (d_state, d_conv) = (settings.size("dState", 16)?, settings.size("dConv", 4)?);
        Ok(SsdConfig { d_inner, d_state, d_conv, n_heads, n_groups })
    };
    let layer = match kind {
        LayerKind::Mamba1 => LayerConfig::Mamba1(Mamba1Config {
            d_inner: inner()?,
            d_state: settings.size("dState", 16)?,
            d_conv: settings.size("dConv", 4)?,
            dt_rank: settings.own_size("dtRank", d_model.div_ceil(16))?,
        }),
        LayerKind::Mamba2 => LayerConfig::Mamba2(ssd()?),
        LayerKind::Mamba3 => LayerConfig::Mamba3(ssd()?),
        LayerKind::Attention => {
            let n_heads = settings.size("nHeads", 4)?;
            if !d_model.is_multiple_of(n_heads) {
                return Err(error("nHeads", format!("{n_heads} heads do not divide the width {d_model}")));
            }
            let head_dim = d_model / n_heads;
            let asked = settings.own_size("dHead", head_dim)?;
            if asked != head_dim {
                let what = format!("heads of {asked}, but {n_heads} of them in a width of {d_model} are {head_dim}");
                return Err(error("dHead", what));
            }
            let d_ff =
                settings.own_flag("hasFfn")?.then(|| settings.own_multiple("ffnMult", 4, d_model)).transpose()?;
            LayerConfig::Attention(AttentionConfig { n_heads, head_dim, d_ff })
        }
    };
    for parameter in parameters::of_layer(&layer, d_model) {
        if parameter.shape.elements().is_none() {
            let sizes = parameter.shape.sizes();
            let what = format!("layer{number}.{} would be {sizes:?}, larger than a file can hold", parameter.name);
            return Err(settings.error(&format!("layers[{number}]"), what));
        }
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_the_order_of_their_ids() {
        for (id, (kind, name, _)) in KINDS.into_iter().enumerate() {
            assert_eq!((usize::from(kind.id()), LayerKind::from_id(id as u8)), (id, kind));
            assert_eq!((kind.name(), LayerKind::from_name(name)), (name, Some(kind)));
        }
        assert_eq!(LayerKind::from_id(4), LayerKind::Mamba1);
    }
}
