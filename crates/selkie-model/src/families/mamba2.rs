//! Mamba-2 and Codestral Mamba: layers of one state-space dual each. Paper: <https://arxiv.org/abs/2405.21060>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{Defaults, Reader, USUAL},
    recurrent::{Keys, MIXER},
    settings::Settings,
};
use crate::{ModelSpec, Result, spec::Mixer};

const KEYS: Keys = Keys {
    d_inner: "",
    expand: "expand",
    dt_rank: "",
    d_state: ("state_size", 128),
    taps: ("conv_kernel", 4),
    n_heads: ("num_heads", 128),
    head_dim: ("head_dim", 64),
    n_groups: ("n_groups", 8),
    activation: "hidden_act",
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, &[], MIXER)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let sizes = r.mamba2_sizes(&KEYS)?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = Mixer::Mamba2(Box::new(r.mamba2(layer, &sizes)?));
        layers.push(r.mixer_layer(layer, mixer)?);
    }
    r.finish(layers)
}
