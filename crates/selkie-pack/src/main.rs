//! Builds what `web/` needs of Rust: `cargo run -p selkie-pack`.
//!
//! There are two modules, since wasm has no way to ask for instructions at run time: `web/wasm/base` needs 128-bit SIMD,
//! which every browser has, and `web/wasm/relaxed` relaxed SIMD, too. The page takes the second where it can.
//!
//! `--quick` leaves out what makes the modules small, which takes most of the time: for work on them, and for tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use wasm_bindgen_cli_support::Bindgen;

const TARGET: &str = "wasm32-unknown-unknown";

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wanted: Vec<String> = env::args().skip(1).collect();
    let quick = wanted.iter().position(|word| word == "--quick").map(|at| wanted.remove(at));
    let profile = if quick.is_some() { "release" } else { "web" };
    if let Some(word) = wanted.iter().find(|word| !FLAVOURS.contains(&word.as_str())) {
        bail!("`{word}` is none of --quick, {}", FLAVOURS.join(", "));
    }
    let flavours =
        FLAVOURS.into_iter().filter(|flavour| wanted.is_empty() || wanted.iter().any(|name| name == flavour));
    // Side by side: the last steps of a small module's build use one core.
    let builds: Vec<_> = flavours
        .map(|flavour| {
            let root = root.clone();
            thread::spawn(move || build(&root, flavour, profile))
        })
        .collect();
    for build in builds {
        build.join().map_err(|_| anyhow!("a build panicked"))??;
    }
    Ok(())
}

const FLAVOURS: [&str; 2] = ["base", "relaxed"];

fn build(root: &Path, flavour: &str, profile: &str) -> Result<()> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // A folder each, since the flags differ, and two builds in one wait for each other.
    let target = target.join("web").join(flavour);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--quiet", "-p", "selkie-web", "--target", TARGET, "--profile", profile]);
    cargo.arg("--target-dir").arg(&target);
    let features = if flavour == "relaxed" { "+simd128,+relaxed-simd" } else { "+simd128" };
    cargo.env("RUSTFLAGS", format!("-C target-feature={features}"));
    if !cargo.status().context("cargo")?.success() {
        bail!("selkie-web cannot be built (the target {TARGET} is installed by `rustup target add {TARGET}`)");
    }
    let out = root.join("web/wasm").join(flavour);
    fs::create_dir_all(&out)?;
    let module = target.join(TARGET).join(profile).join("selkie_web.wasm");
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(&module)
        .web(true)?
        .typescript(true)
        .omit_default_module_path(false)
        .remove_name_section(true)
        .remove_producers_section(true);
    bindgen.generate(&out)?;
    let bytes = fs::metadata(out.join("selkie_web_bg.wasm"))?.len();
    println!("web/wasm/{flavour}: {:.2} MB", bytes as f64 / 1e6);
    Ok(())
}
