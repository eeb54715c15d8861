//! `--backend gpu`, on a GPU or on software that plays one.

mod common;

use common::{command, failure, fixture, json, json_lines, text};

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

#[test]
fn devices_are_measured() {
    let made = json(&["devices", "--json"]);
    let gpus = made["gpus"].as_array().expect("a list");
    assert!(!gpus.is_empty(), "these tests need a GPU, or Mesa's lavapipe");
    for (number, gpu) in gpus.iter().enumerate() {
        assert_eq!(gpu["number"], number);
        for word in ["name", "kind", "interface", "driver"] {
            assert!(gpu[word].as_str().is_some_and(|word| !word.is_empty()), "{gpu}");
        }
        assert_eq!(gpu["software"], gpu["kind"] == "software");
        assert!(
            gpu["features"]["f16"].is_boolean() && gpu["limits"]["binding_bytes"].as_u64() >= Some(128 << 20),
            "{gpu}"
        );
        assert!(gpu["read_bytes_per_second"].as_f64().is_some_and(|rate| (1e8..1e14).contains(&rate)), "{gpu}");
        let seconds = |what: &str| gpu[what].as_f64().expect("a time");
        assert!(
            0.0 < seconds("dispatch_seconds") && seconds("dispatch_seconds") < seconds("round_trip_seconds"),
            "{gpu}"
        );
    }
    let shown = text(&["devices"]);
    assert!(shown.contains("gpu 0 ") && shown.contains(" GB/s; a dispatch takes "), "{shown}");
}

#[test]
fn bench_counts_dispatches() {
    let model = fixture(MODEL);
    let args = ["bench", &model, "--backend", "gpu", "-p", "16", "-n", "8", "-r", "2"];
    let lines = json_lines(&[&args[..], &["--json", "--kernels"]].concat());
    let names: Vec<_> = lines.iter().map(|line| line["test"].as_str().expect("a name")).collect();
    assert_eq!(names, ["prefill 16", "decode 8"]);
    let decode = &lines[1];
    assert!(lines[0]["dispatches_per_token"].is_null());
    assert!(decode["dispatches_per_token"].as_u64().is_some_and(|n| (8..60).contains(&n)), "{decode}");
    assert!(decode["bandwidth_share"].as_f64().is_some_and(|share| 0.0 < share && share < 1.0), "{decode}");
    assert!(decode["tokens_at_once"].as_u64().is_some_and(|n| (1..=8).contains(&n)), "{decode}");
    for line in &lines {
        assert_eq!(line["runs"].as_array().map(Vec::len), Some(2));
        assert!(line["kernels"].is_array(), "{line}");
    }
    assert!(text(&args).contains(" dispatches a token"));
}
