//! Falcon-H1: Mamba-2 and attention side by side in every layer, with a multiplier on nearly everything. GGUF files have
//! these in their weights already. Report: <https://arxiv.org/abs/2507.22448>.

use selkie_formats::{Checkpoint, json_f64};

use super::{
    decoder::{AttentionOptions, Defaults, Reader, USUAL},
    recurrent::{BAMBA_KEYS, Keys, MAMBA},
    settings::Settings,
};
use crate::{
    Error, ModelSpec, Result,
    rope::Pairing,
    spec::{Activation, Branch, FeedForward, Mixer},
    weights::Transform,
};

const KEYS: Keys = Keys { d_inner: "mamba_d_ssm", ..BAMBA_KEYS };

pub(super) fn read(settings: Settings<'_>, checkpoint: &Checkpoint) -> Result<ModelSpec> {
    let mut r = Reader::hybrid(settings, checkpoint, &[], MAMBA)?.with_defaults(Defaults { eps: 1e-5, ..USUAL });
    let mut sizes = r.mamba2_sizes(&KEYS)?;
    let scale = |key: &str| r.settings.scale("", key, 1.0);
    let (ssm_in, ssm_out) = (scale("ssm_in_multiplier")?, scale("ssm_out_multiplier")?);
    let (attention_in, attention_out) = (scale("attention_in_multiplier")?, scale("attention_out_multiplier")?);
    let (key, embedding, head) =
        (scale("key_multiplier")?, scale("embedding_multiplier")?, scale("lm_head_multiplier")?);
    let [gate, down] = multipliers(&r.settings, "mlp_multipliers")?;
    let [z, x, b, c, dt] = multipliers(&r.settings, "ssm_multipliers")?;
    if [x, b, c] != [1.0; 3] {
        // The convolution is linear in what it is given, so its weights may carry what is asked of its input.
        let width = sizes.shape.n_groups * sizes.shape.d_state;
        sizes.conv = Transform::ScaleRows(vec![(sizes.shape.d_inner(), x), (width, b), (width, c)]);
    }
    let norm_before_gate = !r.settings.is_gguf() && r.settings.switch("", "mamba_norm_before_gate", true)?;
    let rope = r.rope(Pairing::Halves)?;
    let default = r.options(rope);
    // Scores are linear in the keys.
    let options = AttentionOptions { scale: default.scale * key, ..default };
    let activation = r.activation("hidden_act", Activation::Silu)?;
    let mut layers = vec![];
    for layer in 0..r.sizes.n_layers {
        let mut mamba = r.mamba2(layer, &sizes)?;
        (mamba.z_scale, mamba.dt_scale, mamba.norm_before_gate) = (z, dt, norm_before_gate);
        let attention = r.attention(layer, &options)?;
        let mixer = Mixer::Parallel(vec![
            Branch { input_scale: ssm_in, mixer: Mixer::Mamba2(Box::new(mamba)), output_scale: ssm_out },
            Branch { input_scale: attention_in, mixer: attention, output_scale: attention_out },
        ]);
        let mut feed_forward = r.dense(layer, activation)?;
        if let FeedForward::Dense(dense) = &mut feed_forward {
            dense.gate_scale = gate;
        }
        let mut built = r.pre_norm_layer(layer, mixer, feed_forward)?;
        built.feed_forward.iter_mut().for_each(|block| block.residual_scale = down);
        layers.push(built);
    }
    Ok(ModelSpec { embedding_scale: embedding, logit_scale: head, ..r.finish(layers)? })
}

/// A list of so many multipliers; ones where it is missing.
fn multipliers<const N: usize>(s: &Settings<'_>, key: &str) -> Result<[f32; N]> {
    let Some(found) = s.field(key) else { return Ok([1.0; N]) };
    let values: Option<Vec<f32>> =
        found.as_array().and_then(|list| list.iter().map(|v| json_f64(v).map(|v| v as f32)).collect());
    let values = values.filter(|values| values.iter().all(|v| v.is_finite()));
    values
        .and_then(|values| values.try_into().ok())
        .ok_or_else(|| Error::setting(key, format!("{found} is not {N} numbers")))
}
