//! `--backend gpu`, on a GPU or on software that plays one.

mod common;

use common::{command, failure, fixture, json};

const MODEL: &str = "hf/llama-gqa/model.gguf";

/// A run that finds no driver.
#[cfg(target_os = "linux")]
fn without_drivers(args: &[&str]) -> (Option<i32>, String, String) {
    let nowhere = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-driver.json");
    let run = command(args).env("VK_DRIVER_FILES", &nowhere).env("VK_ICD_FILENAMES", &nowhere).output();
    let run = run.expect("selkie runs");
    let utf8 = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (run.status.code(), utf8(run.stdout), utf8(run.stderr))
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_runs_elsewhere_where_there_is_no_gpu() {
    let model = fixture(MODEL);
    for args in [
        &["generate", &model, "--ids", "1,2"][..],
        &["generate", &model, "--ids", "1,2", "--device", "llvmpipe"],
        &["logits", &model, "--ids", "1", "--out", "/dev/null"],
        &["bench", &model, "-p", "8", "-n", "8", "-r", "1"],
    ] {
        let (code, out, errors) = without_drivers(&[args, &["--backend", "gpu"]].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {errors}");
        assert!(errors.starts_with("selkie: no GPU ") && errors.lines().count() == 1, "{args:?}: {errors}");
    }
    let (code, out, errors) = without_drivers(&["generate", &model, "--ids", "1,2", "-n", "2"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(!out.is_empty() && !errors.contains("GPU"), "{errors}");
}

#[test]
fn answers_are_those_of_the_cpu() {
    let model = fixture(MODEL);
    let args =
        ["generate", &model, "--ids", "1,2,3", "-n", "6", "--temperature", "0", "--exact", "--json", "--backend"];
    let ids = |backend| json(&[&args[..], &[backend]].concat())["ids"].clone();
    assert_eq!(ids("gpu"), ids("cpu"));
}

#[test]
fn devices_have_names_and_numbers() {
    let model = fixture(MODEL);
    let args = ["generate", &model, "--ids", "1,2", "-n", "1", "--json", "--backend", "gpu", "--device"];
    json(&[&args[..], &["0"]].concat());
    for nobody in ["Voodoo 3", "99"] {
        let line = failure(&[&args[..], &[nobody]].concat());
        assert!(line.starts_with(&format!("no GPU is called {nobody:?}; there are: ")), "{line}");
    }
}
