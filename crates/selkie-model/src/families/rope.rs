//! Rotary settings of either format.

use serde_json::Value;

use super::{decoder::Sizes, settings::Settings, tensors::Tensors};
use crate::{
    Error, Result,
    rope::{Factors, Pairing, RopeScaling, RopeSpec, yarn_mscale},
};
use selkie_formats::json_f64;

/// The rotary embedding that the settings describe.
pub(crate) fn read(s: &Settings<'_>, tensors: &mut Tensors<'_>, sizes: &Sizes, pairing: Pairing) -> Result<RopeSpec> {
    if s.is_gguf() { from_gguf(s, tensors, sizes, pairing) } else { from_config(s, None, sizes, pairing) }
}

fn checked(
    s: &Settings<'_>,
    n_dims: usize,
    theta: f64,
    sizes: &Sizes,
    pairing: Pairing,
    scaling: RopeScaling,
) -> Result<RopeSpec> {
    if n_dims == 0 || !n_dims.is_multiple_of(2) || n_dims > sizes.head_dim {
        let what = format!("{n_dims} channels of a head of {} cannot turn in pairs", sizes.head_dim);
        return Err(Error::setting(s.name("rope.dimension_count", "partial_rotary_factor"), what));
    }
    if !(theta > 0.0 && theta.is_finite()) {
        return Err(Error::setting(s.name("rope.freq_base", "rope_theta"), format!("is {theta}")));
    }
    let senseless = |what: String| Err(Error::setting(s.name("rope.scaling.factor", "rope_scaling"), what));
    let positive = |n: f64| n > 0.0 && n.is_finite();
    match &scaling {
        &RopeScaling::Linear { factor } | &RopeScaling::Dynamic { factor, .. } if !positive(factor) => {
            return senseless(format!("a factor of {factor}"));
        }
        &RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, .. }
            if !(positive(factor) && positive(low) && positive(high) && low < high) =>
        {
            return senseless(format!("a factor of {factor} between {low} and {high}"));
        }
        &RopeScaling::Yarn { factor, beta_fast, beta_slow, attention_factor, .. }
            if ![factor, beta_fast, beta_slow, attention_factor].into_iter().all(positive) || theta <= 1.0 =>
        {
            let what = format!("factors of {factor} and {attention_factor} between {beta_fast} and {beta_slow} turns");
            return senseless(format!("{what}, base {theta}"));
        }
        RopeScaling::LongRope { short, long, attention_factor, .. } => {
            let zero = |f: &Factors| matches!(f, Factors::Inline(values) if !values.iter().all(|&v| positive(v)));
            if zero(short) || zero(long) || !positive(*attention_factor) {
                return senseless("a divisor or factor that is not positive".into());
            }
        }
        _ => {}
    }
    Ok(RopeSpec { n_dims, theta, pairing, scaling, freq_factors: None })
}

fn from_gguf(s: &Settings<'_>, tensors: &mut Tensors<'_>, sizes: &Sizes, pairing: Pairing) -> Result<RopeSpec> {
    let number = |key: &str| s.number(key, "");
    let n_dims = s.count("rope.dimension_count", "")?.unwrap_or(sizes.head_dim);
    let theta = number("rope.freq_base")?.unwrap_or(10_000.0);
    let context = s.count("rope.scaling.original_context_length", "")?.filter(|&c| c > 0).or(sizes.context);
    let factor = number("rope.scaling.factor")?.or(number("rope.scale_linear")?).filter(|&f| f > 0.0);
    let kind = s.gguf("rope.scaling.type").and_then(|(metadata, key)| metadata.get_str(&key));
    let pairs = [n_dims / 2];
    let scaling = if tensors.has("rope_factors_long.weight") {
        let short = tensors.weight("rope_factors_short.weight", &pairs)?;
        let long = tensors.weight("rope_factors_long.weight", &pairs)?;
        RopeScaling::LongRope {
            short: Factors::Weight(short),
            long: Factors::Weight(long),
            attention_factor: number("rope.scaling.attn_factor")?.unwrap_or(1.0),
            context: context.unwrap_or(usize::MAX),
        }
    } else {
        match (kind, factor) {
            (None | Some("none"), None) | (Some("none"), _) | (Some("longrope"), _) | (Some("linear"), None) => {
                RopeScaling::None
            }
            (None | Some("linear"), Some(factor)) => RopeScaling::Linear { factor },
            (Some("yarn"), factor) => {
                let factor = factor.ok_or_else(|| Error::setting("rope.scaling.factor", "is missing"))?;
                let given = number("rope.scaling.attn_factor")?.filter(|&f| f > 0.0).unwrap_or(1.0);
                // DeepSeek's models have this factor on the scores instead.
                let on_scores = number("rope.scaling.yarn_log_multiplier")?.is_some_and(|m| m != 0.0);
                RopeScaling::Yarn {
                    factor,
                    beta_fast: number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    attention_factor: if on_scores { given } else { given * yarn_mscale(factor, 1.0) },
                    truncate: true,
                    context: context.ok_or_else(|| Error::setting("context_length", "is missing"))?,
                }
            }
            (Some(other), _) => return Err(Error::setting("rope.scaling.type", format!("`{other}` is not known"))),
        }
    };
    let mut rope = checked(s, n_dims, theta, sizes, pairing, scaling)?;
    if tensors.has("rope_freqs.weight") {
        rope.freq_factors = Some(tensors.weight("rope_freqs.weight", &pairs)?);
    }
    Ok(rope)
}

/// From a configuration: `rope_parameters` as transformers 5 writes them (one set, or one a kind of layer, chosen by
/// `layer_type`), or `rope_theta` and `rope_scaling` before.
pub(crate) fn from_config(
    s: &Settings<'_>,
    layer_type: Option<&str>,
    sizes: &Sizes,
    pairing: Pairing,
) -> Result<RopeSpec> {
    let parameters = s.field("rope_parameters").map(|p| layer_type.and_then(|kind| p.get(kind)).unwrap_or(p));
    let scaling = s.field("rope_scaling");
    let lookup = |key: &str| parameters.and_then(|p| p.get(key)).or_else(|| scaling.and_then(|v| v.get(key)));
    let number = |key: &str| -> Result<Option<f64>> {
        match lookup(key).filter(|v| !v.is_null()) {
            None => Ok(None),
            Some(v) => json_f64(v).map(Some).ok_or_else(|| Error::setting(key, "is not a number")),
        }
    };
    let or_top = |key: &str| -> Result<Option<f64>> { Ok(number(key)?.or(s.number("", key)?)) };
    let theta = or_top("rope_theta")?.unwrap_or(sizes.theta);
    let part = or_top("partial_rotary_factor")?.unwrap_or(sizes.rotary_part);
    let n_dims = (sizes.head_dim as f64 * part) as usize;
    let factor = number("factor")?;
    let need = |found: Option<f64>, key: &str| found.ok_or_else(|| Error::setting(key, "is missing"));
    let max_positions = sizes.context.map(|c| c as f64);
    let original = or_top("original_max_position_embeddings")?;
    let context =
        need(original.or(max_positions), "max_position_embeddings").map(|c| if c >= 1.0 { c as usize } else { 1 });
    let kind = lookup("rope_type").or_else(|| lookup("type")).and_then(Value::as_str).unwrap_or("default");
    let scaling = match kind {
        "default" | "mrope" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: need(factor, "factor")? },
        "dynamic" => RopeScaling::Dynamic {
            factor: need(factor, "factor")?,
            context: need(max_positions, "max_position_embeddings")?.max(1.0) as usize,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: need(factor, "factor")?,
            low_freq_factor: need(number("low_freq_factor")?, "low_freq_factor")?,
            high_freq_factor: need(number("high_freq_factor")?, "high_freq_factor")?,
            context: context?,
        },
        "yarn" => {
            let context = context?;
            let factor = need(factor.or(max_positions.map(|m| m / context as f64)), "factor")?;
            let attention_factor = match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
                (Some(given), _, _) => given,
                (None, Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => {
                    yarn_mscale(factor, mscale) / yarn_mscale(factor, all)
                }
                _ => yarn_mscale(factor, 1.0),
            };
            RopeScaling::Yarn {
                factor,
                beta_fast: number("beta_fast")?.unwrap_or(32.0),
                beta_slow: number("beta_slow")?.unwrap_or(1.0),
                attention_factor,
                truncate: lookup("truncate").and_then(Value::as_bool).unwrap_or(true),
                context,
            }
        }
        // `su` is what the first Phi-3 files call it.
        "longrope" | "su" => {
            let list = |key: &str| -> Result<Factors> {
                let values = lookup(key).and_then(Value::as_array);
                let values = values.and_then(|v| v.iter().map(json_f64).collect::<Option<Vec<f64>>>());
                let values = values.ok_or_else(|| Error::setting(key, "is not a list of numbers"))?;
                if values.len() != n_dims / 2 {
                    return Err(Error::setting(key, format!("{} divisors for {} pairs", values.len(), n_dims / 2)));
                }
                Ok(Factors::Inline(values))
            };
            let context = context?;
            // Published models give the stretched length instead of the factor.
            let factor = match original {
                Some(original) => max_positions.map(|m| m / original).or(factor),
                None => factor,
            };
            let attention_factor = match (number("attention_factor")?, factor) {
                (Some(given), _) => given,
                (None, Some(factor)) if factor > 1.0 => (1.0 + factor.ln() / (context as f64).ln()).sqrt(),
                _ => 1.0,
            };
            RopeScaling::LongRope {
                short: list("short_factor")?,
                long: list("long_factor")?,
                attention_factor,
                context,
            }
        }
        other => return Err(Error::setting("rope_type", format!("`{other}` is not known"))),
    };
    checked(s, n_dims, theta, sizes, pairing, scaling)
}
