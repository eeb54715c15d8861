//! DeepSeek-V2 and its Lite: latent attention, and after some dense layers mixtures beside a block for every row; the large one
//! chooses experts from the groups whose best expert is best. GGUF files of V3 say that they are of this kind.
//! Paper: <https://arxiv.org/abs/2405.04434>.

use selkie_formats::Checkpoint;

use super::{decoder::Reader, latent, mixture::MixtureOptions, settings::Settings};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Routing, Score},
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let r = Reader::latent(settings, checkpoint, latent::NAMES)?;
    // The first GGUF files of V3 do not name its function, but have its bias.
    let last = r.sizes.n_layers - 1;
    let biased = r.tensors.has(&format!("blk.{last}.exp_probs_b.bias"));
    let score = if biased { Score::Sigmoid } else { Score::Softmax };
    let mut routing = r.routing(Routing { score, ..Routing::softmax(false) })?;
    if !r.settings.is_gguf() {
        // As transformers has it: `norm_topk_prob` is not looked at.
        routing.renormalise = false;
    }
    match r.settings.field("topk_method").map(|method| method.as_str()) {
        // GGUF files do not name it: their counts of groups tell.
        None if r.settings.is_gguf() => {}
        Some(Some("group_limited_greedy" | "noaux_tc")) => {}
        None | Some(Some("greedy")) => routing.groups = None,
        Some(_) => return Err(Error::setting("topk_method", "is not known (greedy, group_limited_greedy are)")),
    }
    let layers = Layers { pairing: Pairing::Interleaved, routing, choice_bias: biased };
    layers.read(r)
}

/// What differs between the versions.
pub(super) struct Layers {
    /// Which channels turn together.
    pub pairing: Pairing,
    /// How experts are chosen.
    pub routing: Routing,
    /// Whether a bias takes part in that.
    pub choice_bias: bool,
}

impl Layers {
    /// The model around them.
    pub fn read(&self, mut r: Reader<'_>) -> Result<ModelSpec> {
        let options = r.latent_options(self.pairing)?;
        let activation = r.activation("hidden_act", Activation::Silu)?;
        let mixture = MixtureOptions::new(activation, self.routing);
        let n_shared = r.settings.count("expert_shared_count", "n_shared_experts")?.unwrap_or(0);
        let mut layers = vec![];
        for layer in 0..r.sizes.n_layers {
            let mixer = r.latent_attention(layer, &options)?;
            let feed_forward = if r.has_mixture(layer) {
                if n_shared > 0 {
                    r.tensors.require(&format!("blk.{layer}.ffn_up_shexp.weight"))?;
                }
                if self.choice_bias {
                    r.tensors.require(&format!("blk.{layer}.exp_probs_b.bias"))?;
                }
                r.mixture(layer, &mixture)?
            } else {
                r.dense(layer, activation)?
            };
            layers.push(r.pre_norm_layer(layer, mixer, feed_forward)?);
        }
        r.finish(layers)
    }
}
