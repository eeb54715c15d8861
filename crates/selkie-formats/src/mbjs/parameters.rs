//! The parameters of a model: names, shapes, initial values.

use super::{Config, LayerConfig, SsdConfig};

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Normal draws of that standard deviation. Only these take random numbers.
    Gaussian(f64),
    /// `ln(n + 1)` for column `n`, in every row.
    LogColumns,
    /// `(0, 2·pi·h/H)` in row `h` of `H`: log-magnitude and phase.
    Phases,
}

/// A parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name: `embedding`, `layer0.wInProj`, `final_norm`.
    pub name: String,
    /// Sizes, slowest axis first; a matrix is `[out, in]`.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
}

impl Parameter {
    /// Number of values; a configuration has none of more than a `u32` counts.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A parameter of a layer before its sizes have been checked: they may be more than a `usize` holds.
pub(super) struct Sizes {
    pub name: &'static str,
    pub shape: Shape,
    pub init: Init,
}

/// One or two sizes.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Vector(u64),
    Matrix(u64, u64),
}

impl Shape {
    /// Number of values, where a `u32` can count them.
    pub fn elements(self) -> Option<u32> {
        let (rows, columns) = match self {
            Shape::Vector(len) => (1, len),
            Shape::Matrix(rows, columns) => (rows, columns),
        };
        rows.checked_mul(columns).and_then(|elements| elements.try_into().ok())
    }

    /// The sizes, slowest axis first.
    pub fn sizes(self) -> Vec<u64> {
        match self {
            Shape::Vector(len) => vec![len],
            Shape::Matrix(rows, columns) => vec![rows, columns],
        }
    }
}

/// The parameters of the whole model, in the order of files.
pub(super) fn of_model(config: &Config) -> Vec<Parameter> {
    let d_model = config.d_model();
    let std = 1.0 / (d_model as f64).sqrt();
    let embedding = Parameter {
        name: "embedding".to_owned(),
        shape: vec![config.vocab_size(), d_model],
        init: Init::Gaussian(std),
    };
    let layers = config.layers().iter().enumerate().flat_map(|(number, layer)| {
        let named = move |Sizes { name, shape, init }| Parameter {
            name: format!("layer{number}.{name}"),
            // Sizes of a whole configuration have been checked.
            shape: shape.sizes().into_iter().map(|size| size as usize).collect(),
            init,
        };
        of_layer(layer, d_model).into_iter().map(named)
    });
    let final_norm = Parameter { name: "final_norm".to_owned(), shape: vec![d_model], init: Init::Ones };
    [embedding].into_iter().chain(layers).chain([final_norm]).collect()
}

/// The parameters of one layer, in the order of files.
pub(super) fn of_layer(layer: &LayerConfig, d_model: usize) -> Vec<Sizes> {
    use Init::{Gaussian, LogColumns, Ones, Phases, Zeros};
    let d_model = d_model as u64;
    let vector = |name, len, init| Sizes { name, shape: Shape::Vector(len), init };
    let matrix = |name, rows, columns, init| Sizes { name, shape: Shape::Matrix(rows, columns), init };
    match *layer {
        LayerConfig::Mamba1(ref mamba) => {
            let [d_inner, d_state, d_conv, dt_rank] =
                [mamba.d_inner, mamba.d_state, mamba.d_conv, mamba.dt_rank].map(|size| size as u64);
            let x_proj = dt_rank + 2 * d_state;
            vec![
                matrix("wInProj", 2 * d_inner, d_model, Gaussian(0.02)),
                vector("bInProj", 2 * d_inner, Zeros),
                matrix("wConv", d_inner, d_conv, Gaussian(0.01)),
                vector("bConv", d_inner, Zeros),
                matrix("wXProj", x_proj, d_inner, Gaussian(0.01)),
                vector("bXProj", x_proj, Zeros),
                matrix("wDtProj", d_inner, dt_rank, Gaussian(0.02)),
                vector("bDtProj", d_inner, Zeros),
                matrix("A_log", d_inner, d_state, LogColumns),
                vector("D_vec", d_inner, Ones),
                matrix("wOutProj", d_model, d_inner, Gaussian(0.02)),
                vector("bOutProj", d_model, Zeros),
                vector("normWeight", d_model, Ones),
            ]
        }
        LayerConfig::Mamba2(ref ssd) => {
            let a_log = vector("A_log", ssd.n_heads as u64, Zeros);
            of_ssd(ssd, d_model, 1, a_log)
        }
        LayerConfig::Mamba3(ref ssd) => {
            let a_log = matrix("A_log", ssd.n_heads as u64, 2, Phases);
            of_ssd(ssd, d_model, 2, a_log)
        }
        LayerConfig::Attention(ref attention) => {
            let mut list = vec![
                matrix("wQKV", 3 * d_model, d_model, Gaussian(0.02)),
                vector("bQKV", 3 * d_model, Zeros),
                matrix("wO", d_model, d_model, Gaussian(0.02)),
                vector("bO", d_model, Zeros),
                vector("normWeight", d_model, Ones),
            ];
            if let Some(d_ff) = attention.d_ff.map(|size| size as u64) {
                list.extend([
                    matrix("wFfn1", d_ff, d_model, Gaussian(0.02)),
                    vector("bFfn1", d_ff, Zeros),
                    matrix("wFfn2", d_model, d_ff, Gaussian(0.02)),
                    vector("bFfn2", d_model, Zeros),
                ]);
            }
            list
        }
    }
}

/// Mamba-2 and Mamba-3; `parts` numbers (1, or real and imaginary) are one state.
fn of_ssd(ssd: &SsdConfig, d_model: u64, parts: u64, a_log: Sizes) -> Vec<Sizes> {
    use Init::{Gaussian, Ones, Zeros};
    let vector = |name, len, init| Sizes { name, shape: Shape::Vector(len), init };
    let matrix = |name, rows, columns, init| Sizes { name, shape: Shape::Matrix(rows, columns), init };
    let [d_inner, d_state, d_conv, n_heads, n_groups] =
        [ssd.d_inner, ssd.d_state, ssd.d_conv, ssd.n_heads, ssd.n_groups].map(|size| size as u64);
    // x, B and C go through the convolution together.
    let channels = d_inner + 2 * n_groups * d_state * parts;
    vec![
        matrix("wInProj", channels + n_heads, d_model, Gaussian(0.02)),
        matrix("wConv", channels, d_conv, Gaussian(0.01)),
        vector("bConv", channels, Zeros),
        a_log,
        vector("dt_bias", n_heads, Zeros),
        vector("D_vec", n_heads, Ones),
        matrix("wOutProj", d_model, d_inner, Gaussian(0.02)),
        vector("normWeight", d_inner, Ones),
        vector("preNormWeight", d_model, Ones),
    ]
}
