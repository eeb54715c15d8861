//! DeepSeek-V3 and R1: a V2 whose experts are chosen by sigmoids and a learned bias, from the groups whose two best are best.
//! Paper: <https://arxiv.org/abs/2412.19437>.

use selkie_formats::Checkpoint;

use super::{decoder::Reader, deepseek_v2::Layers, latent, settings::Settings};
use crate::{
    ModelSpec, Result,
    rope::Pairing,
    spec::{GroupScore, Groups, Routing, Score},
};

/// How experts are chosen where the configuration does not say.
const USUAL: Routing = Routing {
    score: Score::Sigmoid,
    choice_bias: None,
    groups: Some(Groups { n_groups: 8, n_used: 4, by: GroupScore::BestTwo }),
    renormalise: true,
    scale: 2.5,
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let r = Reader::latent(settings, checkpoint, latent::NAMES)?;
    let pairing = if r.settings.switch("", "rope_interleave", true)? { Pairing::Interleaved } else { Pairing::Halves };
    let layers = Layers { pairing, routing: r.routing(USUAL)?, choice_bias: true };
    layers.read(r)
}
