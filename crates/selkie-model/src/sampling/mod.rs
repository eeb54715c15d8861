//! From logits to a token, as pure functions.
//!
//! [`sample`] takes logits, parameters, the tokens so far and one uniform number; the number comes from [`uniform`], a
//! counter-based generator of (seed, sequence, position). So the same seed gives the same text, however tokens are
//! batched and wherever they are computed: executors that [choose themselves](crate::Executor::generate) do as these do.

mod philox;

pub use philox::uniform;

use std::collections::HashMap;

/// How a token is chosen. [`Default`] is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keeps this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens up to this much of the whole probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely, relative to the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits, and multiplies negative ones, of tokens that occurred; 1 is none.
    pub repetition_penalty: f32,
    /// Taken off a token's logit for each time that it occurred.
    pub frequency_penalty: f32,
    /// Taken off a token's logit once it has occurred.
    pub presence_penalty: f32,
    /// How many of the last tokens penalties look at; 0 looks at all.
    pub penalty_window: usize,
    /// Added to single tokens' logits.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            logit_bias: vec![],
        }
    }
}

/// A parameter out of its range.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{name} is {value}, but must be {wanted}")]
pub struct ParamError {
    name: &'static str,
    value: f32,
    wanted: &'static str,
}

impl SamplingParams {
    /// Checks ranges.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ParamError> {
        let check =
            |name, value: f32, ok: bool, wanted| if ok { Ok(()) } else { Err(ParamError { name, value, wanted }) };
        let finite = f32::is_finite;
        check("temperature", self.temperature, finite(self.temperature) && self.temperature >= 0.0, "0 or more")?;
        check("top-p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1")?;
        check("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1")?;
        let penalty = self.repetition_penalty;
        check("repetition penalty", penalty, finite(penalty) && penalty > 0.0, "above 0")?;
        check("frequency penalty", self.frequency_penalty, finite(self.frequency_penalty), "a number")?;
        check("presence penalty", self.presence_penalty, finite(self.presence_penalty), "a number")?;
        let bias = self.logit_bias.iter().map(|b| b.1).find(|b| b.is_nan());
        check("logit bias", bias.unwrap_or(0.0), bias.is_none(), "a number")
    }

    /// Whether penalties or biases change the logits before a token is chosen; penalties look at the tokens so far.
    pub fn changes_logits(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
            || !self.logit_bias.is_empty()
    }
}

/// The next token from `logits` `[vocab_size]`, given the tokens so far and one uniform number in `[0, 1)`.
///
/// Logits that are no numbers are never chosen. Equal ones go to the lower id.
pub fn sample(logits: &[f32], params: &SamplingParams, history: &[u32], uniform: f32) -> u32 {
    let mut adjusted;
    let logits = if params.changes_logits() {
        adjusted = logits.to_vec();
        penalise(&mut adjusted, params, history);
        bias(&mut adjusted, &params.logit_bias);
        &adjusted[..]
    } else {
        logits
    };
    if params.temperature == 0.0 || params.top_k == 1 {
        return argmax(logits);
    }
    choose(&candidates(logits, params), uniform)
}

/// The lowest id among the largest logits.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id as u32, logit);
        }
    }
    best.0
}

/// Repetition, frequency and presence penalties for the tokens of `history` that are looked at.
pub fn penalise(logits: &mut [f32], params: &SamplingParams, history: &[u32]) {
    let window = if params.penalty_window == 0 { history.len() } else { params.penalty_window.min(history.len()) };
    let mut counts: HashMap<u32, u32> = HashMap::new();
    history[history.len() - window..].iter().for_each(|&id| *counts.entry(id).or_default() += 1);
    for (id, count) in counts {
        let Some(logit) = logits.get_mut(id as usize) else { continue };
        *logit = if *logit > 0.0 { *logit / params.repetition_penalty } else { *logit * params.repetition_penalty };
        *logit -= count as f32 * params.frequency_penalty + params.presence_penalty;
    }
}

/// Adds to single tokens' logits; ids outside the vocabulary are passed over.
pub fn bias(logits: &mut [f32], biases: &[(u32, f32)]) {
    for &(id, by) in biases {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit += by;
        }
    }
}

/// A token that may be chosen, with its share of the whole probability mass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// `exp(logit / temperature)` over the sum for the whole vocabulary.
    pub probability: f32,
}

/// The tokens that top-k, top-p and min-p leave, the likeliest first.
///
/// Top-p counts shares of the whole mass, not of what top-k left.
pub fn candidates(logits: &[f32], params: &SamplingParams) -> Vec<Candidate> {
    let temperature = params.temperature.max(1e-7);
    let max = logits.iter().copied().filter(|l| !l.is_nan()).fold(f32::NEG_INFINITY, f32::max) / temperature;
    let mut total = 0.0f64;
    let mut kept = Vec::with_capacity(if params.min_p > 0.0 { 64 } else { logits.len() });
    for (id, &logit) in logits.iter().enumerate() {
        let e = if logit.is_nan() { 0.0 } else { (logit / temperature - max).exp() };
        total += f64::from(e);
        // The likeliest has e = 1, so e itself is the likelihood relative to it.
        if e > 0.0 && e >= params.min_p {
            kept.push(Candidate { id: id as u32, probability: e });
        }
    }
    let order = |a: &Candidate, b: &Candidate| b.probability.total_cmp(&a.probability).then(a.id.cmp(&b.id));
    if params.top_k > 0 && params.top_k < kept.len() {
        kept.select_nth_unstable_by(params.top_k - 1, order);
        kept.truncate(params.top_k);
    }
    kept.sort_unstable_by(order);
    kept.iter_mut().for_each(|c| c.probability = (f64::from(c.probability) / total) as f32);
    if params.top_p < 1.0 {
        let mut mass = 0.0f64;
        let enough = kept.iter().position(|c| {
            mass += f64::from(c.probability);
            mass >= f64::from(params.top_p)
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    kept
}

/// The candidate at `uniform` of the mass that candidates have together.
pub fn choose(candidates: &[Candidate], uniform: f32) -> u32 {
    let mass: f64 = candidates.iter().map(|c| f64::from(c.probability)).sum();
    let threshold = f64::from(uniform) * mass;
    let mut sum = 0.0f64;
    for candidate in candidates {
        sum += f64::from(candidate.probability);
        if sum >= threshold && sum > 0.0 {
            return candidate.id;
        }
    }
    candidates.last().map_or(0, |c| c.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> SamplingParams {
        SamplingParams { temperature: 1.0, ..SamplingParams::default() }
    }

    fn ids(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|c| c.id).collect()
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_no_nan() {
        assert_eq!(sample(&[1.0, 3.0, f32::NAN, 3.0], &SamplingParams::default(), &[], 0.9), 1);
        let all_equal = SamplingParams { top_k: 1, ..params() };
        assert_eq!(sample(&[2.0; 5], &all_equal, &[], 0.99), 0);
    }

    #[test]
    fn top_p_counts_shares_of_the_whole_mass() {
        // Shares 0.5, 0.25, 0.125, 0.125: after top-k 2 a renormalised walk would stop at the first already.
        let logits = [0.5f32.ln(), 0.25f32.ln(), 0.125f32.ln(), 0.125f32.ln()];
        let p = SamplingParams { top_k: 2, top_p: 0.6, ..params() };
        assert_eq!(ids(&candidates(&logits, &p)), [0, 1]);
        let p = SamplingParams { top_p: 0.5, ..params() };
        assert_eq!(ids(&candidates(&logits, &p)), [0]);
    }

    #[test]
    fn min_p_is_relative_to_the_likeliest() {
        let logits = [1.0f32.ln(), 0.5f32.ln(), 0.2f32.ln(), 0.05f32.ln()];
        // Between two of the shares: exactly at one, rounding decides.
        let p = SamplingParams { min_p: 0.15, ..params() };
        assert_eq!(ids(&candidates(&logits, &p)).len(), 3);
    }

    #[test]
    fn a_uniform_number_picks_its_share() {
        let logits = [0.25f32.ln(), 0.75f32.ln()];
        let pick = |u| sample(&logits, &params(), &[], u);
        assert_eq!((pick(0.0), pick(0.74), pick(0.76), pick(0.999)), (1, 1, 0, 0));
    }

    #[test]
    fn penalties_count_within_their_window() {
        let p = SamplingParams {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            penalty_window: 3,
            ..params()
        };
        let mut logits = [4.0, -1.0, 1.0, 1.0];
        penalise(&mut logits, &p, &[3, 0, 0, 1]);
        assert_eq!(logits, [4.0 / 2.0 - 1.25, -2.0 - 0.75, 1.0, 1.0]);
    }

    #[test]
    fn biases_move_the_choice() {
        let p = SamplingParams { logit_bias: vec![(2, 10.0), (9, 1.0)], ..SamplingParams::default() };
        assert_eq!(sample(&[1.0, 2.0, 0.0], &p, &[], 0.5), 2);
    }

    #[test]
    fn ranges_are_checked() {
        let bad = SamplingParams { top_p: 0.0, ..params() };
        assert_eq!(bad.check().unwrap_err().to_string(), "top-p is 0, but must be above 0 and at most 1");
        assert!(SamplingParams { temperature: f32::NAN, ..params() }.check().is_err());
        assert!(params().check().is_ok());
    }
}
