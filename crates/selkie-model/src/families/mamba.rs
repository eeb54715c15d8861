//! Mamba and Falcon-Mamba: layers of one selective scan each, which Falcon-Mamba norms inside, without weights.
//! Papers: <https://arxiv.org/abs/2312.00752>, <https://arxiv.org/abs/2410.05355>.

use selkie_formats::Checkpoint;

use super::{
    decoder::{Defaults, Reader, USUAL},
    recurrent::{InnerNorms, Keys, MIXER},
    settings::Settings,
};
use crate::{ModelSpec, Result, spec::Mixer};

const KEYS: Keys = Keys {
    d_inner: "intermediate_size",
    expand: "expand",
    dt_rank: "time_step_rank",
    d_state: ("state_size", 16),
    taps: ("conv_kernel", 4),
    n_heads: ("", 0),
    head_dim: ("", 0),
    n_groups: ("", 0),
    activation: "hidden_act",
};

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r =
        Reader::hybrid(settings, checkpoint, &[], MIXER)?.with_defaults(Defaults { eps: 1e-5, tied: true, ..USUAL });
    let sizes = r.mamba1_sizes(&KEYS)?;
    let normed = r.settings.architecture() == "falcon_mamba" || r.settings.switch("ssm.dt_b_c_rms", "", false)?;
    let norms = match normed {
        false => InnerNorms::None,
        // GGUF files have no epsilon of the inner norms.
        true if r.settings.is_gguf() => InnerNorms::Plain { eps: r.sizes.eps },
        true => InnerNorms::Plain { eps: r.settings.scale("", "mixer_rms_eps", 1e-6)? },
    };
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mixer = Mixer::Mamba1(Box::new(r.mamba1(layer, &sizes, &norms)?));
        layers.push(r.mixer_layer(layer, mixer)?);
    }
    r.finish(layers)
}
