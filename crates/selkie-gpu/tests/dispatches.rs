//! How many dispatches a token takes, from compiled plans: within the budgets of its parts, and as `dispatches.txt` keeps them.
//! `UPDATE_SNAPSHOTS=1` writes that anew.

#[path = "common/plans.rs"]
mod plans;

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use plans::{LARGE, models, program};
use selkie_gpu::compile::Regime;
use selkie_model::spec::{FeedForward, Layer, Mixer};

/// Dispatches that a mixer may take; parallel ones add up.
fn mixer_budget(mixer: &Mixer) -> usize {
    match mixer {
        Mixer::Attention(_)
        | Mixer::LatentAttention(_)
        | Mixer::Mamba2(_)
        | Mixer::Mamba3(_)
        | Mixer::Cssd(_)
        | Mixer::ShortConv(_) => 5,
        Mixer::Mamba1(_) | Mixer::DeltaNet(_) => 6,
        Mixer::Parallel(branches) => branches.iter().map(|branch| mixer_budget(&branch.mixer)).sum(),
    }
}

fn budget(layer: &Layer) -> usize {
    let mixer = layer.mixer.as_ref().map_or(0, |block| mixer_budget(&block.inner));
    let feed_forward = layer.feed_forward.as_ref().map_or(0, |block| match &block.inner {
        FeedForward::Dense(_) => 3,
        FeedForward::Mixture(_) => 5,
        FeedForward::Shared(_) => 8,
    });
    // A shared block is attention and a dense part, corrections of low rank and a product at the end among them.
    let shared = if layer.shared.is_some() { 8 } else { 0 };
    mixer + feed_forward + shared
}

#[test]
fn tokens_keep_their_budgets() {
    let mut page = String::from("Dispatches of a token by layer, and in all, on a large card\n\n");
    let mut over = vec![];
    for (name, spec, weights) in models() {
        let program = program(&spec, &weights, LARGE, Regime::Token, false);
        let mut by_layer: BTreeMap<usize, usize> = BTreeMap::new();
        program.rows.iter().filter_map(|row| row.layer).for_each(|layer| *by_layer.entry(layer).or_default() += 1);
        let mut kinds: Vec<String> = vec![];
        for (at, layer) in spec.layers.iter().enumerate() {
            let used = by_layer.get(&at).copied().unwrap_or(0);
            if used > budget(layer) {
                over.push(format!("{name}: layer {at} ({layer}) takes {used}, and may take {}", budget(layer)));
            }
            let kind = format!("{layer} {used}");
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        writeln!(page, "{name}: {}; all {}", kinds.join(", "), program.rows.len()).expect("a string");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dispatches.txt");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &page).expect("the snapshot");
    }
    let kept = fs::read_to_string(&path).expect("the snapshot").replace("\r\n", "\n");
    assert!(over.is_empty(), "{}", over.join("\n"));
    assert!(kept == page, "dispatches have changed; UPDATE_SNAPSHOTS=1 writes them anew:\n{page}");
}
