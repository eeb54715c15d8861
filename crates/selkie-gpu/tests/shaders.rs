//! Without a GPU: every kernel that any fixture's plan needs, for every block format and flavour, is valid WGSL.

use std::collections::BTreeSet;

use selkie_gpu::{
    Flavours, Limits, Shader,
    compile::{Regime, Target, compile},
    quant::Format,
    sampling_shaders,
    weights::Needed,
};
use selkie_model::plan::{fuse, plan};

/// Flavours that stand for kinds of devices: the portable floor, a browser with subgroups, a large card, a small one.
const DEVICES: [Flavours; 4] = [
    Flavours { subgroup: None, f16: false, cooperative: false, packed_dot: false, unchecked: false },
    Flavours { subgroup: None, f16: false, cooperative: false, packed_dot: true, unchecked: false },
    Flavours { subgroup: Some(32), f16: true, cooperative: true, packed_dot: true, unchecked: true },
    Flavours { subgroup: Some(8), f16: false, cooperative: false, packed_dot: true, unchecked: true },
];

/// The shaders of both programs of every fixture for a device.
fn shaders(flavours: Flavours) -> BTreeSet<Shader> {
    let large = Limits { binding: 1 << 31, buffer: 1 << 32, workgroup_memory: 48 << 10, ..Limits::FLOOR };
    let limits = if flavours.cooperative { large } else { Limits::FLOOR };
    let mut found = BTreeSet::from_iter(sampling_shaders());
    for name in [selkie_suite::DENSE, selkie_suite::MIXTURES, selkie_suite::RECURRENT].concat() {
        for form in &selkie_suite::Case::open(name).forms {
            let (spec, weights) = form.load();
            let plan = fuse(plan(&spec));
            for (regime, exact) in
                [(Regime::Token, false), (Regime::Token, true), (Regime::Block, false), (Regime::Block, true)]
            {
                let target = Target { regime, limits, flavours, exact };
                let mut needed = Needed::new(&spec, Some(&weights), limits);
                let rows = if regime == Regime::Token { 1 } else { 512 };
                let program = compile(&spec, &plan, target, rows, 4096, &mut needed)
                    .unwrap_or_else(|e| panic!("{name}/{}: {e}", form.name));
                found.extend(program.rows.into_iter().map(|row| row.shader));
            }
        }
    }
    found
}

/// The same shader over every format of its kind.
fn over_formats(shader: &Shader) -> Vec<Shader> {
    let Some(own) = shader.defines.get("FORMAT") else { return vec![shader.clone()] };
    let float = shader.defines.get("FORMAT_FLOAT").is_some();
    let grids = shader.defines.get("FORMAT_GRIDS").is_some();
    let alike = Format::all().filter(|f| f.is_float() == float && f.needs_grids() == grids);
    let mut all: Vec<Shader> = alike
        .map(|format| {
            let defines = format.defines().iter().fold(shader.defines.clone(), |d, (name, value)| d.set(name, value));
            Shader { defines, ..shader.clone() }
        })
        .collect();
    all.retain(|s| s.defines.get("FORMAT") != Some(own));
    all.push(shader.clone());
    all
}

#[test]
fn every_kernel_format_and_flavour_is_valid() {
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    let mut seen = BTreeSet::new();
    for flavours in DEVICES {
        for shader in shaders(flavours).iter().flat_map(over_formats) {
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
    }
    println!("{} shaders", seen.len());
    assert!(seen.len() > 300, "only {} shaders were found", seen.len());
}
