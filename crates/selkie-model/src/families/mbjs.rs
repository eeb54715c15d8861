//! The npm package's hybrids: a schedule of Mamba-1, Mamba-2, complex SSD (which it calls `mamba3`) and attention layers.
//! The checkpoint's own configuration describes it, in whatever file the parameters are.

use std::{collections::HashMap, ops::Range};

use selkie_formats::{
    Checkpoint,
    mbjs::{AttentionConfig, Config, LayerConfig, Mamba1Config, SsdConfig},
};

use super::decoder::block;
use crate::{
    Error, Result,
    spec::{
        Activation, Attention, Conv, Cssd, CssdShape, Dense, FeedForward, InputRule, Layer, Linear, Mamba1, Mamba2,
        Mixer, ModelSpec, Norm, SsdShape,
    },
    weights::{Part, Transform, Weight, WeightId, Weights},
};

/// Of every norm.
const EPS: f32 = 1e-6;

pub(super) fn read(config: &Config, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let shapes = config.parameters().into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
    let mut r = Reader { checkpoint, shapes, weights: Weights::default(), d_model: config.d_model() };
    let embedding = r.weight("embedding")?;
    let layers = config.layers().iter().enumerate();
    let layers = layers.map(|(number, layer)| r.layer(number, layer)).collect::<Result<_>>()?;
    let final_norm = r.norm("final_norm", config.d_model())?;
    r.note_unused();
    Ok(ModelSpec {
        architecture: selkie_formats::mbjs::ARCHITECTURE.to_owned(),
        d_model: config.d_model(),
        vocab_size: config.vocab_size(),
        context: None,
        embedding,
        embedding_scale: 1.0,
        layers,
        final_norm,
        // The package adds a bias that is zero and can be nothing else: no file holds it.
        head: Linear::new(embedding),
        logit_scale: 1.0,
        logit_softcap: None,
        ropes: vec![],
        weights: r.weights,
    })
}

/// Makes weights of parameters and of rows of them.
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    shapes: HashMap<String, Vec<usize>>,
    weights: Weights,
    d_model: usize,
}

impl Reader<'_> {
    fn layer(&mut self, number: usize, layer: &LayerConfig) -> Result<Layer> {
        let at = |name: &str| format!("layer{number}.{name}");
        let mut pre_norm = "normWeight";
        let mut feed_forward = None;
        let mixer = match layer {
            LayerConfig::Mamba1(c) => self.mamba1(&at, c)?,
            LayerConfig::Mamba2(c) => {
                pre_norm = "preNormWeight";
                self.mamba2(&at, c)?
            }
            LayerConfig::Mamba3(c) => {
                pre_norm = "preNormWeight";
                self.cssd(&at, c)?
            }
            LayerConfig::Attention(c) => {
                feed_forward = if c.d_ff.is_some() { Some(self.feed_forward(&at)?) } else { None };
                self.attention(&at, c)?
            }
        };
        let pre_norm = self.norm(&at(pre_norm), self.d_model)?;
        Ok(Layer {
            shared: None,
            mixer: Some(block(Some(pre_norm), mixer, None)),
            // The package norms nothing here.
            feed_forward: feed_forward.map(|dense| block(None, FeedForward::Dense(dense), None)),
        })
    }

    fn mamba1(&mut self, at: &dyn Fn(&str) -> String, c: &Mamba1Config) -> Result<Mixer> {
        let &Mamba1Config { d_inner, d_state, dt_rank, .. } = c;
        let (b, both) = (dt_rank + d_state, dt_rank + 2 * d_state);
        Ok(Mixer::Mamba1(Box::new(Mamba1 {
            x: self.linear_rows(&at("wInProj"), Some(&at("bInProj")), 0..d_inner)?,
            z: self.linear_rows(&at("wInProj"), Some(&at("bInProj")), d_inner..2 * d_inner)?,
            conv: self.conv(at, true)?,
            dt: self.linear_rows(&at("wXProj"), Some(&at("bXProj")), 0..dt_rank)?,
            b: self.linear_rows(&at("wXProj"), Some(&at("bXProj")), dt_rank..b)?,
            c: self.linear_rows(&at("wXProj"), Some(&at("bXProj")), b..both)?,
            norms: None,
            dt_up: self.linear(&at("wDtProj"), Some(&at("bDtProj")))?,
            a: self.transformed(&at("A_log"), Transform::NegExpClamped)?,
            d: self.weight(&at("D_vec"))?,
            input: InputRule::ZeroOrderHold,
            out: self.linear(&at("wOutProj"), Some(&at("bOutProj")))?,
        })))
    }

    fn mamba2(&mut self, at: &dyn Fn(&str) -> String, c: &SsdConfig) -> Result<Mixer> {
        let shape = SsdShape {
            n_heads: c.n_heads,
            head_dim: c.head_dim(),
            n_groups: c.n_groups,
            d_state: c.d_state,
            dt_min: 0.0,
            dt_max: f32::INFINITY,
            scale_input: false,
        };
        let (xbc, dt) = self.in_proj(at, shape.width(), c.n_heads)?;
        Ok(Mixer::Mamba2(Box::new(Mamba2 {
            z: None,
            z_scale: 1.0,
            xbc,
            conv: self.conv(at, false)?,
            dt,
            dt_scale: 1.0,
            a: self.transformed(&at("A_log"), Transform::NegSoftplus)?,
            d: self.weight(&at("D_vec"))?,
            dt_bias: self.weight(&at("dt_bias"))?,
            shape,
            norm: Some(self.norm(&at("normWeight"), c.d_inner)?),
            norm_before_gate: false,
            out: self.linear(&at("wOutProj"), None)?,
        })))
    }

    fn cssd(&mut self, at: &dyn Fn(&str) -> String, c: &SsdConfig) -> Result<Mixer> {
        let (n_heads, head_dim) = (c.n_heads, c.head_dim());
        let shape = CssdShape { n_heads, head_dim, n_groups: c.n_groups, d_state: c.d_state };
        let (xbc, dt) = self.in_proj(at, shape.width(), n_heads)?;
        Ok(Mixer::Cssd(Box::new(Cssd {
            xbc,
            conv: self.conv(at, false)?,
            dt,
            a_log: self.weight(&at("A_log"))?,
            d: self.weight(&at("D_vec"))?,
            dt_bias: self.weight(&at("dt_bias"))?,
            shape,
            norm: self.norm(&at("normWeight"), c.d_inner)?,
            out: self.linear(&at("wOutProj"), None)?,
        })))
    }

    /// Rows x, B and C of a projection to be convolved, and those for the time steps.
    fn in_proj(&mut self, at: &dyn Fn(&str) -> String, width: usize, n_heads: usize) -> Result<(Linear, Linear)> {
        let xbc = self.linear_rows(&at("wInProj"), None, 0..width)?;
        let dt = self.linear_rows(&at("wInProj"), None, width..width + n_heads)?;
        Ok((xbc, dt))
    }

    /// The softmax's denominator has 1e-12 added in the package. It is 1 or more, so that this is nothing in f32.
    fn attention(&mut self, at: &dyn Fn(&str) -> String, c: &AttentionConfig) -> Result<Mixer> {
        let width = self.d_model;
        let mut part = |n: usize| self.linear_rows(&at("wQKV"), Some(&at("bQKV")), n * width..(n + 1) * width);
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        Ok(Mixer::Attention(Box::new(Attention {
            q,
            k,
            v,
            o: self.linear(&at("wO"), Some(&at("bO")))?,
            gate: None,
            conv: None,
            q_norm: None,
            k_norm: None,
            n_heads: c.n_heads,
            n_kv_heads: c.n_heads,
            head_dim: c.head_dim,
            rope: None,
            scale: (c.head_dim as f32).sqrt().recip(),
            softcap: None,
            window: None,
            clip: None,
            sinks: None,
        })))
    }

    fn feed_forward(&mut self, at: &dyn Fn(&str) -> String) -> Result<Dense> {
        let up = self.linear(&at("wFfn1"), Some(&at("bFfn1")))?;
        let down = self.linear(&at("wFfn2"), Some(&at("bFfn2")))?;
        Ok(Dense { gate: None, gate_scale: 1.0, up, down, activation: Activation::Silu })
    }

    /// Files have the taps the other way round: the first meets the current token.
    fn conv(&mut self, at: &dyn Fn(&str) -> String, silu: bool) -> Result<Conv> {
        let weight = self.transformed(&at("wConv"), Transform::ReverseRows)?;
        Ok(Conv { weight, bias: Some(self.weight(&at("bConv"))?), silu })
    }

    fn norm(&mut self, name: &str, group: usize) -> Result<Norm> {
        Ok(Norm { weight: Some(self.weight(name)?), group, eps: EPS })
    }

    fn linear(&mut self, weight: &str, bias: Option<&str>) -> Result<Linear> {
        let weight = self.weight(weight)?;
        Ok(Linear { bias: bias.map(|bias| self.weight(bias)).transpose()?, ..Linear::new(weight) })
    }

    /// A product with some rows of a matrix, and those values of its bias.
    fn linear_rows(&mut self, weight: &str, bias: Option<&str>, rows: Range<usize>) -> Result<Linear> {
        let weight = self.push(weight, Some(rows.clone()), Transform::None)?;
        let bias = bias.map(|bias| self.push(bias, Some(rows), Transform::None)).transpose()?;
        Ok(Linear { bias, ..Linear::new(weight) })
    }

    fn weight(&mut self, name: &str) -> Result<WeightId> {
        self.push(name, None, Transform::None)
    }

    fn transformed(&mut self, name: &str, transform: Transform) -> Result<WeightId> {
        self.push(name, None, transform)
    }

    /// A parameter, or rows of it, as a weight. Other formats than MBJS's own say their tensors' sizes: these are checked.
    fn push(&mut self, name: &str, rows: Option<Range<usize>>, transform: Transform) -> Result<WeightId> {
        let tensor = self.checkpoint.get(name).ok_or_else(|| Error::MissingTensor(name.to_owned()))?.clone();
        let shape = self.shapes.get(name).cloned().unwrap_or_default();
        if tensor.shape != shape {
            return Err(Error::Shape { tensor: name.to_owned(), found: tensor.shape, wanted: shape });
        }
        // Of a list, single values are taken.
        let (len, row_len) = match shape[..] {
            [len] if rows.is_some() => (len, 1),
            [len] => (1, len),
            _ => (shape[0], shape[1]),
        };
        if tensor.dtype.row_bytes(row_len).is_none() {
            let what = format!("{} cannot hold rows of {row_len} values", tensor.dtype);
            return Err(Error::Tensor { tensor: name.to_owned(), what });
        }
        let mut own = shape;
        if let Some(rows) = &rows {
            own[0] = rows.len();
        }
        let parts = vec![Part { tensor, rows: rows.unwrap_or(0..len), row_len }];
        Ok(self.weights.push(Weight { name: name.to_owned(), shape: own, parts, transform }))
    }

    /// Says where the file has what the model does not use.
    fn note_unused(&self) {
        let mut unused = self.checkpoint.tensors().iter().filter(|tensor| !self.shapes.contains_key(&tensor.name));
        if let Some(first) = unused.next() {
            let n = 1 + unused.count();
            tracing::warn!("{n} tensors (`{}` first) are not used by this model", first.name);
        }
    }
}
