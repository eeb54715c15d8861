//! Snapshots of printed plans: what `selkie plan` shows. `UPDATE_SNAPSHOTS=1` writes them anew.

use std::{env, fs, path::Path};

use selkie_model::plan;
use selkie_suite::Case;

#[test]
fn printed_plans() {
    let names = ["llama-gqa", "gemma3-text", "mixtral", "phi3", "granite", "olmo2"];
    let mixtures = [("deepseek3-mla", "model.gguf"), ("gptoss", "model.gguf"), ("qwen2moe-shared", "model-q8_0.gguf")];
    for (name, form) in names.into_iter().map(|name| (name, "model.gguf")).chain(mixtures) {
        print(name, form);
    }
}

fn print(name: &str, form: &str) {
    let case = Case::open(name);
    let form = case.forms.iter().find(|f| f.name == form).expect("the form");
    let (spec, _) = form.load();
    let plain = plan::plan(&spec);
    let fused = plan::fuse(plain.clone());
    check(&format!("{name}.txt"), &plain.print(&spec));
    check(&format!("{name}.fused.txt"), &fused.print(&spec));
}

/// Recurrent layers; from safetensors where those say more, or are all there is.
#[test]
fn printed_recurrent_plans() {
    let gguf = ["mamba", "mamba2-g2", "lfm2", "qwen3next"].map(|name| (name, "model.gguf"));
    let safetensors = ["ssm-mamba3-mimo", "falcon-h1", "zamba2"].map(|name| (name, "safetensors with config.json"));
    for (name, form) in gguf.into_iter().chain(safetensors) {
        print(name, form);
    }
}

/// A quantised model: the stored types stand beside the products.
#[test]
fn printed_types() {
    let case = Case::open("k256-llama");
    let form = case.forms.iter().find(|f| f.name == "model-q4_k_m.gguf").expect("a quantised form");
    let (spec, _) = form.load();
    check("k256-llama-q4_k_m.txt", &plan::plan(&spec).print(&spec));
}

fn check(file: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(file);
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, got).expect("a snapshot");
    }
    let wanted = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(got, wanted.replace("\r\n", "\n"), "{file} has changed; UPDATE_SNAPSHOTS=1 writes it anew");
}
