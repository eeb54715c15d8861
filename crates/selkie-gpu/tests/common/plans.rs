//! Fixtures' plans, compiled for kinds of devices, without one.

use selkie_gpu::{
    Flavours, Limits,
    compile::{Program, Regime, Target, compile},
    weights::Needed,
};
use selkie_model::{
    LoadedWeights, ModelSpec,
    plan::{fuse, plan},
};
use selkie_suite::{Case, DENSE, MIXTURES, RECURRENT};

/// A large card with everything.
pub const LARGE: Flavours =
    Flavours { subgroup: Some(32), f16: true, cooperative: true, packed_dot: true, unchecked: true };

/// What a kind of device allows.
pub fn limits(flavours: Flavours) -> Limits {
    let large =
        Limits { binding: 1 << 31, buffer: 1 << 32, workgroup_memory: 48 << 10, storage_buffers: 16, ..Limits::FLOOR };
    if flavours.cooperative { large } else { Limits::FLOOR }
}

/// The program of a model for a kind of device.
pub fn program(spec: &ModelSpec, weights: &LoadedWeights, flavours: Flavours, regime: Regime, exact: bool) -> Program {
    let plan = fuse(plan(spec));
    let target = Target { regime, limits: limits(flavours), flavours, exact };
    let source = weights.clone().into();
    let mut needed = Needed::new(spec, Some(&source), limits(flavours));
    let rows = if regime == Regime::Token { 1 } else { 512 };
    compile(spec, &plan, target, rows, 4096, &mut needed).unwrap_or_else(|e| panic!("{}: {e}", spec.architecture))
}

/// Every fixture: as it was made, and once quantised where there is such a form.
pub fn models() -> impl Iterator<Item = (String, ModelSpec, LoadedWeights)> {
    [DENSE, MIXTURES, RECURRENT].concat().into_iter().flat_map(|name| {
        let case = Case::open(name);
        let quantised = case.forms.iter().position(|form| form.name.contains("model-q") || form.name.contains("mxfp4"));
        let kept = [Some(0), quantised];
        let load = |at: usize| {
            let (spec, weights) = case.forms[at].load();
            (format!("{name}/{}", case.forms[at].name), spec, weights)
        };
        kept.into_iter().flatten().map(load).collect::<Vec<_>>()
    })
}
