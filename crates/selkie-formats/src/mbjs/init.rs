//! Fresh weights.

use super::{Config, Init, Lcg, Parameter};
use crate::{Error, Result};

/// The initial values of all parameters, one after another, in the order of files. Equal seeds give equal bits.
///
/// `seed` beats the configuration's; for a model without one, the caller brings a random number.
///
/// ```
/// use selkie_formats::mbjs::{Config, initial};
/// let config = Config::parse("config.json", br#"{"vocabSize": 8, "dModel": 4, "numLayers": 1}"#)?;
/// for parameter in initial(&config, 7) {
///     let (parameter, values) = parameter?;
///     assert_eq!(values.len(), parameter.elements());
/// }
/// # Ok::<(), selkie_formats::Error>(())
/// ```
pub fn initial(config: &Config, seed: u32) -> impl Iterator<Item = Result<(Parameter, Vec<f32>)>> {
    let mut random = Lcg::new(seed);
    config.parameters().into_iter().map(move |parameter| {
        let values = values(&parameter, &mut random)?;
        Ok((parameter, values))
    })
}

/// The initial values of one parameter.
///
/// # Errors
/// Where there is no memory for them.
fn values(parameter: &Parameter, random: &mut Lcg) -> Result<Vec<f32>> {
    let len = parameter.elements();
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| {
        let what = format!("parameter `{}`: no memory for {len} values", parameter.name);
        Error::Write { what }
    })?;
    let rows = parameter.shape.first().copied().unwrap_or(1);
    let columns = len / rows.max(1);
    match parameter.init {
        Init::Zeros => values.resize(len, 0.0),
        Init::Ones => values.resize(len, 1.0),
        Init::Gaussian(std) => values.extend((0..len).map(|_| random.gaussian(std))),
        Init::LogColumns => {
            let row: Vec<f32> = (1..=columns).map(|n| libm::log(n as f64) as f32).collect();
            values.extend((0..rows).flat_map(|_| &row));
        }
        Init::Phases => values.extend((0..rows).flat_map(|head| {
            let phase = std::f64::consts::TAU * head as f64 / rows as f64;
            [0.0, phase as f32]
        })),
    }
    Ok(values)
}
