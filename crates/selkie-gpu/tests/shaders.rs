//! Without a GPU: every kernel that any fixture's plan needs, for every block format and flavour, is valid WGSL.

#[path = "common/plans.rs"]
mod plans;

use std::collections::BTreeSet;

use plans::{LARGE, models, program};
use selkie_gpu::{Flavours, Shader, compile::Regime, quant::Format, sampling_shaders};

/// Flavours that stand for kinds of devices: the portable floor, one with packed products, a large card, a small one.
const DEVICES: [Flavours; 4] = [
    Flavours { subgroup: None, f16: false, cooperative: false, packed_dot: false, unchecked: false },
    Flavours { subgroup: None, f16: false, cooperative: false, packed_dot: true, unchecked: false },
    LARGE,
    Flavours { subgroup: Some(8), f16: false, cooperative: false, packed_dot: true, unchecked: true },
];

/// The same shader over every format of its kind.
fn over_formats(shader: &Shader) -> Vec<Shader> {
    let mut all = vec![shader.clone()];
    if shader.defines.get("FORMAT").is_some() {
        let float = shader.defines.get("FORMAT_FLOAT").is_some();
        let grids = shader.defines.get("FORMAT_GRIDS").is_some();
        let alike = Format::all().filter(|f| f.is_float() == float && f.needs_grids() == grids);
        all.extend(alike.map(|format| {
            let defines = format.defines().iter().fold(shader.defines.clone(), |d, (name, value)| d.set(name, value));
            Shader { defines, ..shader.clone() }
        }));
    }
    all
}

#[test]
fn every_kernel_format_and_flavour_is_valid() {
    let mut found: BTreeSet<Shader> = sampling_shaders().into_iter().collect();
    for (_, spec, weights) in models() {
        for flavours in DEVICES {
            for (regime, exact) in
                [(Regime::Token, false), (Regime::Token, true), (Regime::Block, false), (Regime::Block, true)]
            {
                let program = program(&spec, &weights, flavours, regime, exact);
                found.extend(program.rows.into_iter().map(|row| row.shader));
            }
        }
    }
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    let mut seen = BTreeSet::new();
    for shader in found.iter().flat_map(over_formats) {
        let text = shader.text().unwrap_or_else(|e| panic!("{shader}: {e}"));
        if !seen.insert(text.clone()) {
            continue;
        }
        let module =
            naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{shader}: {}", e.emit_to_string(&text)));
        validator.reset();
        if let Err(error) = validator.validate(&module) {
            panic!("{shader}: {}", error.emit_to_string(&text));
        }
    }
    assert!(seen.len() > 1000, "only {} shaders were found", seen.len());
}
