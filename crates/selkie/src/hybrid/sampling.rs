//! How the package chooses tokens.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::{Error, Result, SamplingParams, sampling::uniform};

/// How tokens are chosen. [`Default`] has the package's defaults.
///
/// The logits are divided by the temperature, sorted, cut to the likeliest `top_k`, and to those up to `top_p` of the
/// *whole* probability; a uniform number then picks among the rest by their shares.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridSampling {
    /// Divides the logits; what is 0 or less is greedy.
    pub temperature: f32,
    /// Keeps this many of the likeliest tokens; 1 is greedy, 0 is an error.
    pub top_k: usize,
    /// Keeps the likeliest tokens up to this much of the whole probability, and one at least.
    pub top_p: f32,
    /// The same seed gives the same tokens; without one, they differ each time.
    pub seed: Option<u64>,
}

impl Default for HybridSampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 50, top_p: 0.9, seed: None }
    }
}

impl HybridSampling {
    /// The likeliest token each time.
    pub fn greedy() -> Self {
        Self { top_k: 1, ..Self::default() }
    }

    pub(super) fn params(&self) -> Result<SamplingParams> {
        if self.top_k == 0 {
            return Err(Error::Arguments("top-k is 0, but must be at least 1".to_owned()));
        }
        if self.temperature.is_nan() || self.top_p.is_nan() {
            return Err(Error::Arguments("temperature and top-p must be numbers".to_owned()));
        }
        // One token is kept whatever its share.
        let top_k = if self.top_p > 0.0 { self.top_k } else { 1 };
        let temperature = self.temperature.clamp(0.0, f32::MAX);
        let top_p = self.top_p.clamp(f32::MIN_POSITIVE, 1.0);
        Ok(SamplingParams { temperature, top_k, top_p, ..SamplingParams::default() })
    }

    /// Uniform numbers for the tokens from position `start` on.
    pub(super) fn uniforms(&self, start: usize) -> impl FnMut() -> f64 + use<> {
        let seed = self.seed.unwrap_or_else(random_seed);
        let mut position = start as u64;
        move || {
            position += 1;
            f64::from(uniform(seed, 0, position - 1))
        }
    }
}

/// A seed that nobody can tell beforehand.
pub fn random_seed() -> u64 {
    // The standard library's hashes are keyed with the system's random numbers.
    RandomState::new().build_hasher().finish()
}
