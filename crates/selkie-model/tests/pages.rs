//! The op lists in `docs/state-space.md` are what plans print. `UPDATE_SNAPSHOTS=1` writes them anew.

use std::{env, fs, path::Path};

use selkie_model::{ModelSpec, plan};
use selkie_suite::{Case, MbjsCase};

/// A fence begins with this, the fixture's name and a layer.
const FENCE: &str = "```plan ";

#[test]
fn lists_are_what_plans_print() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-space.md");
    let page = fs::read_to_string(&path).expect("the page").replace("\r\n", "\n");
    let mut anew = String::new();
    let mut lists = 0;
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once(FENCE) {
        let (what, after) = after.split_once('\n').expect("a line's end");
        let (_, after) = after.split_once("```").expect("a fence's end");
        let (name, layer) = what.split_once(' ').expect("a fixture and a layer");
        anew += &format!("{before}{FENCE}{what}\n{}```", ops(name, layer.parse().expect("a number")));
        rest = after;
        lists += 1;
    }
    anew += rest;
    assert!(lists > 8, "{lists} lists were found");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        return fs::write(&path, &anew).expect("the page");
    }
    assert!(anew == page, "the lists in {} have changed; UPDATE_SNAPSHOTS=1 writes them anew", path.display());
}

/// The lines of one layer.
fn ops(name: &str, layer: usize) -> String {
    let spec = spec(name);
    let mut plan = plan::plan(&spec);
    let keep: Vec<bool> = plan.layer_of.iter().map(|of| *of == Some(layer)).collect();
    let mut kept = keep.iter();
    plan.ops.retain(|_| *kept.next().expect("as many"));
    plan.layer_of.retain(|of| *of == Some(layer));
    let text = plan.print(&spec);
    // The heading says what the page does; alignment for wider lines elsewhere is gone with those.
    text.lines().skip(1).map(|line| format!("{}\n", line.trim_start())).collect()
}

fn spec(name: &str) -> ModelSpec {
    if let Some(name) = name.strip_prefix("mbjs/") {
        return MbjsCase::open(name).load().0;
    }
    Case::open(name).forms[0].load().0
}
