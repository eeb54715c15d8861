//! Which experts a row uses, and by how much.

use std::cmp::Ordering;

use super::{
    attention::{dot, softmax, softmax_backward},
    sigmoid, sigmoid_derivative,
};
use crate::{reference::Real, spec::Routing};

/// Keeps a sum of scores from being 0 where it divides.
const SUM_EPS: f64 = 1e-20;

/// How a row's logits become experts and their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteRule {
    /// What becomes of the logits.
    pub score: Score,
    /// Where only experts of the best groups may be chosen.
    pub groups: Option<Groups>,
    /// Whether the chosen scores are divided by their sum.
    pub renormalise: bool,
    /// Multiplies the weights.
    pub scale: f32,
}

/// How a logit becomes a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts (Mixtral, Qwen, DeepSeek-V2).
    Softmax,
    /// `σ(logit)` (DeepSeek-V3).
    Sigmoid,
    /// The logits choose, then softmax over the chosen (gpt-oss, Granite).
    SoftmaxOfChosen,
}

/// Experts in groups of equal size, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many groups there are.
    pub n_groups: usize,
    /// How many of them experts are chosen from.
    pub n_used: usize,
    /// What makes a group good.
    pub by: GroupScore,
}

/// The score of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// That of its best expert (DeepSeek-V2).
    Best,
    /// The sum of its best two (DeepSeek-V3).
    BestTwo,
}

impl From<Routing> for RouteRule {
    fn from(routing: Routing) -> Self {
        match routing {
            Routing::SoftmaxRenormalised => {
                RouteRule { score: Score::Softmax, groups: None, renormalise: true, scale: 1.0 }
            }
        }
    }
}

/// The experts of one row and their weights, in ascending index, from its router's logits `scores` `[n_experts]`.
///
/// `choice_bias` `[n_experts]` is added to the scores for choosing only. Ties go to the lower index, of groups too.
pub fn route<T: Real>(scores: &[T], choice_bias: Option<&[T]>, rule: &RouteRule, n_used: usize) -> Vec<(usize, T)> {
    let values = values(scores, rule.score);
    let choice: Vec<T> = match choice_bias {
        Some(bias) => values.iter().zip(bias).map(|(&v, &bias)| v + bias).collect(),
        None => values.clone(),
    };
    let open = open_experts(&choice, rule.groups);
    let mut chosen = largest(&choice, open, n_used);
    chosen.sort_unstable();
    let weights: Vec<T> = match rule.score {
        Score::SoftmaxOfChosen => softmax(chosen.iter().map(|&e| values[e])),
        Score::Softmax | Score::Sigmoid => chosen.iter().map(|&e| values[e]).collect(),
    };
    let factor = T::from_f32(rule.scale) / if rule.renormalise { divisor(&weights) } else { T::from_f64(1.0) };
    chosen.into_iter().zip(weights).map(|(expert, weight)| (expert, factor * weight)).collect()
}

/// `dscores` `[n_experts]` of [`route`], which chose `chosen`, from the gradient of each choice's weight, `dweights`. Which
/// experts were chosen is constant, and so is the bias.
///
/// Through `w = scale · v / Σ v`: `dv = scale · (dw - Σ (v / Σ v)·dw) / Σ v`; then through the scores.
pub fn route_backward<T: Real>(scores: &[T], chosen: &[(usize, T)], rule: &RouteRule, dweights: &[T]) -> Vec<T> {
    let values = values(scores, rule.score);
    let logits = chosen.iter().map(|&(expert, _)| values[expert]);
    let own: Vec<T> = if rule.score == Score::SoftmaxOfChosen { softmax(logits) } else { logits.collect() };
    let mut down: Vec<T> = dweights.iter().map(|&dw| T::from_f32(rule.scale) * dw).collect();
    if rule.renormalise {
        let sum = divisor(&own);
        let along = dot(&own, &down) / sum;
        down.iter_mut().for_each(|d| *d = (*d - along) / sum);
    }
    if rule.score == Score::SoftmaxOfChosen {
        down = softmax_backward(&own, &down);
    }
    let mut dvalues = vec![T::default(); scores.len()];
    for (&(expert, _), d) in chosen.iter().zip(down) {
        dvalues[expert] = d;
    }
    match rule.score {
        Score::Softmax => softmax_backward(&values, &dvalues),
        Score::Sigmoid => scores.iter().zip(dvalues).map(|(&s, d)| d * sigmoid_derivative(s)).collect(),
        Score::SoftmaxOfChosen => dvalues,
    }
}

/// What experts are chosen by, before the bias.
fn values<T: Real>(scores: &[T], score: Score) -> Vec<T> {
    match score {
        Score::Softmax => softmax(scores.iter().copied()),
        Score::Sigmoid => scores.iter().map(|&s| sigmoid(s)).collect(),
        Score::SoftmaxOfChosen => scores.to_vec(),
    }
}

fn divisor<T: Real>(weights: &[T]) -> T {
    weights.iter().copied().sum::<T>() + T::from_f64(SUM_EPS)
}

/// The experts that may be chosen: all, or those of the best groups.
fn open_experts<T: Real>(choice: &[T], groups: Option<Groups>) -> Vec<usize> {
    let Some(Groups { n_groups, n_used, by }) = groups else { return (0..choice.len()).collect() };
    let size = choice.len() / n_groups;
    let members = |group: usize| group * size..(group + 1) * size;
    let best = match by {
        GroupScore::Best => 1,
        GroupScore::BestTwo => 2,
    };
    let group_score = |group| largest(choice, members(group).collect(), best).iter().map(|&e| choice[e]).sum();
    let group_scores: Vec<T> = (0..n_groups).map(group_score).collect();
    largest(&group_scores, (0..n_groups).collect(), n_used).into_iter().flat_map(members).collect()
}

/// Of `candidates`, the `n` with the largest values; the lower index first where values are equal.
fn largest<T: Real>(values: &[T], mut candidates: Vec<usize>, n: usize) -> Vec<usize> {
    let falling = |&a: &usize, &b: &usize| values[b].partial_cmp(&values[a]).unwrap_or(Ordering::Equal);
    candidates.sort_by(|a, b| falling(a, b).then(a.cmp(b)));
    candidates.truncate(n);
    candidates
}
