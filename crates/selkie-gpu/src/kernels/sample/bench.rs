//! A token of an 8B llama's vocabulary.

use selkie_model::SamplingParams;

use crate::{Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let width = 128_256;
    let likeliest = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let random = SamplingParams { temperature: 1.0, top_k: 40, top_p: 0.95, ..SamplingParams::default() };
    let case = |(name, params): (&str, SamplingParams)| {
        let mut rig = Rig::new(1);
        let out = rig.input_between(width, -10.0, 10.0);
        Case { kernels: &["sample"], choice: Some(params), ..Case::new(name, rig, out, 4 * width) }
    };
    [("the likeliest token", likeliest), ("a random token", random)].map(case).into()
}
