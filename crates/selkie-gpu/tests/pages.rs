//! `KERNELS.md` is made of the shaders themselves. `UPDATE_SNAPSHOTS=1` writes it anew.

#[path = "common/plans.rs"]
mod plans;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::Path,
};

use plans::{LARGE, models, program};
use selkie_gpu::{Flavours, compile::Regime, sampling_shaders, shader_source};

/// Names that choose a flavour rather than a model's sizes, and what they say.
const FLAVOURS: &[(&str, &str)] = &[
    ("SUBGROUP", "sums within subgroups"),
    ("DOT8", "activations in 8 bits, packed products"),
    ("QUADS", "input made four values at a time"),
    ("ROUND", "results rounded to 8 bits"),
    ("HALF", "cache of halves"),
    ("FAST_HALVES", "halves unpacked by the device"),
];

/// What is known of one shader file.
#[derive(Default)]
struct Seen {
    names: BTreeSet<&'static str>,
    flavours: BTreeSet<&'static str>,
    formats: bool,
    token: usize,
    block: usize,
}

/// The comment that a shader opens with.
fn purpose(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.starts_with("//"));
    lines.map(|line| line.trim_start_matches('/').trim()).collect::<Vec<_>>().join(" ")
}

/// The buffers of a shader: what it reads, and what it writes, with their shapes.
fn buffers(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut reads, mut writes) = (vec![], vec![]);
    for line in text.lines().filter(|line| line.contains("var<storage")) {
        let Some((_, declared)) = line.split_once("> ") else { continue };
        let (name, rest) = declared.split_once(':').unwrap_or((declared, ""));
        let shape = rest.split_once("//").map_or("", |(_, shape)| shape.trim());
        let entry = if shape.is_empty() { format!("`{name}`") } else { format!("`{name}` {shape}") };
        let list = if line.contains("read_write") { &mut writes } else { &mut reads };
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    (reads, writes)
}

#[test]
fn kernels_are_what_the_shaders_say() {
    let floor = Flavours::default();
    let mut seen: BTreeMap<&'static str, Seen> = BTreeMap::new();
    for (_, spec, weights) in models() {
        for (flavours, exact) in [(LARGE, false), (LARGE, true), (floor, true)] {
            for regime in [Regime::Token, Regime::Block] {
                let mut uses: BTreeMap<&'static str, usize> = BTreeMap::new();
                for row in program(&spec, &weights, flavours, regime, exact).rows {
                    let file = seen.entry(row.shader.file).or_default();
                    file.names.insert(row.kernel);
                    file.formats |= row.shader.defines.get("FORMAT").is_some();
                    let own = FLAVOURS.iter().filter(|(name, _)| row.shader.defines.get(name).is_some());
                    file.flavours.extend(own.map(|flavour| flavour.1));
                    if row.layer.is_some() {
                        *uses.entry(row.shader.file).or_default() += 1;
                    }
                }
                for (file, n) in uses {
                    let most = n.div_ceil(spec.layers.len());
                    let file = seen.entry(file).or_default();
                    match regime {
                        Regime::Token => file.token = file.token.max(most),
                        Regime::Block => file.block = file.block.max(most),
                    }
                }
            }
        }
    }
    for shader in sampling_shaders() {
        seen.entry(shader.file).or_default().names.insert("sample");
    }
    let mut page = String::from(
        "# Kernels\n\nMade of the shaders by a test of `selkie-gpu`; `UPDATE_SNAPSHOTS=1` writes it anew. A kernel moves the bytes of \
         the buffers that it reads and writes, once, unless it says otherwise; sizes in brackets are values, `rows` those of the \
         batch. *A layer* is the most dispatches that any fixture's plan spends on it for a layer: for a token, and for a block of \
         rows. Kernels over stored matrices exist for every block format, by the includes in `quant/`.\n",
    );
    for (path, file) in &seen {
        let text = shader_source(path).unwrap_or_else(|| panic!("{path} is a shader"));
        let names: Vec<&str> = file.names.iter().copied().collect();
        let (reads, writes) = buffers(text);
        let list = |what: &[String]| if what.is_empty() { "what its includes declare".into() } else { what.join("; ") };
        let purpose = purpose(text);
        assert!(!purpose.is_empty(), "{path} says what it computes in its first lines");
        writeln!(page, "\n## {}\n\n`{path}`. {purpose}\n", names.join(", ")).expect("a string");
        writeln!(page, "- reads: {}\n- writes: {}", list(&reads), list(&writes)).expect("a string");
        if file.formats {
            writeln!(page, "- over every block format").expect("a string");
        }
        if !file.flavours.is_empty() {
            let flavours: Vec<&str> = file.flavours.iter().copied().collect();
            writeln!(page, "- flavours: plain; {}", flavours.join("; ")).expect("a string");
        }
        if file.token + file.block > 0 {
            writeln!(page, "- a layer: {} for a token, {} for a block", file.token, file.block).expect("a string");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../KERNELS.md");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &page).expect("the page");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(kept == page, "KERNELS.md has changed; UPDATE_SNAPSHOTS=1 writes it anew");
}
