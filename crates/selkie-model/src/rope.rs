//! Rotary position embeddings and the ways in which checkpoints stretch them.
//!
//! Pair `i` of a head turns by `position · inv_freq[i]`. RoPE: arXiv 2104.09864; YaRN: arXiv 2309.00071; LongRoPE:
//! arXiv 2402.13753. Where papers and published models differ, Hugging Face's `modeling_rope_utils` is followed.

use std::f64::consts::PI;

use crate::{Error, Result, weights::LoadedWeights, weights::WeightId};

/// Which two channels of a head make a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `i` with `i + n_dims / 2`.
    Halves,
    /// `2i` with `2i + 1`.
    Interleaved,
}

/// A rotary embedding: which channels turn, and how fast.
#[derive(Clone, Debug)]
pub struct RopeSpec {
    /// Channels of a head that turn, from the first on; even.
    pub n_dims: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Which channels make a pair.
    pub pairing: Pairing,
    /// How frequencies are stretched past the trained length.
    pub scaling: RopeScaling,
    /// Divides each frequency, `[n_dims / 2]`, before the scaling: GGUF stores llama 3's stretching so.
    pub freq_factors: Option<WeightId>,
}

/// How frequencies are stretched.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The base grows with the sequence once it is longer than `context`.
    Dynamic {
        /// How strongly.
        factor: f64,
        /// Trained length.
        context: usize,
    },
    /// Long waves divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// Divides the slow frequencies.
        factor: f64,
        /// Waves longer than `context / low_freq_factor` are slow.
        low_freq_factor: f64,
        /// Waves shorter than `context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Trained length.
        context: usize,
    },
    /// A ramp over pairs between interpolated and original frequencies, and a factor on cos and sin.
    Yarn {
        /// Divides interpolated frequencies.
        factor: f64,
        /// Turns in the trained length above which a pair keeps its frequency.
        beta_fast: f64,
        /// Turns below which a pair is interpolated.
        beta_slow: f64,
        /// Multiplies cos and sin.
        attention_factor: f64,
        /// Whether the ramp's ends are rounded to whole pairs.
        truncate: bool,
        /// Trained length.
        context: usize,
    },
    /// A divisor for each pair, one set up to the trained length and one past it.
    LongRope {
        /// Divisors up to `context`.
        short: Factors,
        /// Divisors past it.
        long: Factors,
        /// Multiplies cos and sin.
        attention_factor: f64,
        /// Trained length.
        context: usize,
    },
}

/// Divisors of the frequencies, `[n_dims / 2]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Factors {
    /// From the configuration.
    Inline(Vec<f64>),
    /// From a tensor.
    Weight(WeightId),
}

impl Factors {
    fn values(&self, weights: &LoadedWeights) -> Result<Vec<f64>> {
        match self {
            Factors::Inline(values) => Ok(values.clone()),
            Factors::Weight(id) => Ok(weights.get(*id).to_f32()?.iter().map(|&v| f64::from(v)).collect()),
        }
    }
}

/// The frequencies of one rotary embedding for sequences of some length.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Radians a position, `[n_dims / 2]`.
    pub inv_freq: Vec<f64>,
    /// Multiplies cos and sin.
    pub attention_factor: f64,
}

/// `0.1 · mscale · ln(factor) + 1`, YaRN's factor on cos and sin.
pub fn yarn_mscale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

impl RopeSpec {
    /// The weights that frequencies are computed from.
    pub fn weights(&self) -> Vec<WeightId> {
        let scaling = match &self.scaling {
            RopeScaling::LongRope { short, long, .. } => vec![short, long],
            _ => vec![],
        };
        let factors = scaling.into_iter().filter_map(|factors| match factors {
            Factors::Weight(id) => Some(*id),
            Factors::Inline(_) => None,
        });
        factors.chain(self.freq_factors).collect()
    }

    /// Whether the frequencies depend on how long the sequence is.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, RopeScaling::Dynamic { .. } | RopeScaling::LongRope { .. })
    }

    /// The frequencies for a sequence whose last position is `length - 1`.
    ///
    /// # Errors
    /// Where divisors have another length than there are pairs.
    pub fn frequencies(&self, length: usize, weights: &LoadedWeights) -> Result<Frequencies> {
        let pairs = self.n_dims / 2;
        let base_freq =
            |theta: f64| -> Vec<f64> { (0..pairs).map(|i| theta.powf(-2.0 * i as f64 / self.n_dims as f64)).collect() };
        let divide = |freq: &mut [f64], factors: &[f64]| {
            if factors.len() != pairs {
                let what = format!("{} divisors for {pairs} pairs", factors.len());
                return Err(Error::setting("rope factors", what));
            }
            freq.iter_mut().zip(factors).for_each(|(f, by)| *f /= by);
            Ok(())
        };
        let mut freq = base_freq(self.theta);
        if let Some(id) = self.freq_factors {
            divide(&mut freq, &Factors::Weight(id).values(weights)?)?;
        }
        let mut attention = 1.0;
        match &self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => freq.iter_mut().for_each(|f| *f /= factor),
            RopeScaling::Dynamic { factor, context } => {
                let n = self.n_dims as f64;
                let ratio = length.max(*context) as f64 / *context as f64;
                let grown = self.theta * (factor * ratio - (factor - 1.0)).powf(n / (n - 2.0));
                freq = base_freq(grown);
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, context } => {
                let context = *context as f64;
                for f in &mut freq {
                    let wavelength = 2.0 * PI / *f;
                    if wavelength > context / low_freq_factor {
                        *f /= factor;
                    } else if wavelength >= context / high_freq_factor {
                        let keep = (context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        *f = (1.0 - keep) * *f / factor + keep * *f;
                    }
                }
            }
            &RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, truncate, context } => {
                attention = attention_factor;
                let n = self.n_dims as f64;
                // The pair which makes `turns` turns in the trained length.
                let pair_at = |turns: f64| n * (context as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
                let (mut low, mut high) = (pair_at(beta_fast), pair_at(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(n - 1.0));
                let span = if low == high { 0.001 } else { high - low };
                for (i, f) in freq.iter_mut().enumerate() {
                    let interpolate = ((i as f64 - low) / span).clamp(0.0, 1.0);
                    *f = *f / factor * interpolate + *f * (1.0 - interpolate);
                }
            }
            RopeScaling::LongRope { short, long, attention_factor, context } => {
                attention = *attention_factor;
                let factors = if length > *context { long } else { short };
                divide(&mut freq, &factors.values(weights)?)?;
            }
        }
        Ok(Frequencies { inv_freq: freq, attention_factor: attention })
    }
}

impl Frequencies {
    /// Cosine and sine of every pair at `position`, times the attention factor.
    pub fn cos_sin(&self, position: usize) -> impl Iterator<Item = (f32, f32)> + '_ {
        self.inv_freq.iter().map(move |f| {
            // The frequency is rounded to f32 first and so is the angle, as every published model was trained.
            let angle = (position as f32 * *f as f32) as f64;
            ((angle.cos() * self.attention_factor) as f32, (angle.sin() * self.attention_factor) as f32)
        })
    }
}
