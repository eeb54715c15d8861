//! The npm package's hybrids: `init`, and every command that takes a model, on MBJS files and what they are converted to.

mod common;

use std::{fs, path::Path};

use common::{
    Folder, Tensors, bytes, command, distance, failure, fixture, fixture_json, json, text, typed, wrong_usage,
};
use serde_json::Value;

/// The cases of `fixtures/mbjs`.
fn cases() -> Vec<String> {
    let folders = fs::read_dir(fixture("mbjs")).expect("fixtures");
    let mut names: Vec<String> =
        folders.map(|f| f.expect("a folder").file_name().into_string().expect("UTF-8")).collect();
    names.retain(|name| Path::new(&fixture(&format!("mbjs/{name}/config.json"))).exists());
    names.sort();
    assert_eq!(names.len(), 26);
    names
}

fn about(case: &str) -> Value {
    fixture_json(&format!("mbjs/{case}/config.json"))
}

fn expected(case: &str) -> Value {
    fixture_json(&format!("mbjs/{case}/expected.json"))
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("ids")
}

fn file(case: &str, name: &str) -> Option<Vec<u8>> {
    fs::read(fixture(&format!("mbjs/{case}/{name}"))).ok()
}

/// A model's logits for a case, and those of the package.
fn logits(folder: &Folder, model: &str, case: &str, more: &[&str]) -> (Vec<f32>, Vec<f32>) {
    let lists: Vec<Vec<u32>> = {
        let (about, ids) = (about(case), ids(&expected(case)["ids"]));
        ids.chunks(about["seqLen"].as_u64().expect("seqLen") as usize).map(<[u32]>::to_vec).collect()
    };
    let batch = folder.write("batch.json", serde_json::to_string(&lists).expect("JSON"));
    let out = folder.path("logits.safetensors");
    bytes(&[&["logits", model, "--batch", &batch, "--out", &out], more].concat());
    let got = Tensors::open(out);
    let got: Vec<f32> = (0..lists.len()).flat_map(|k| got.floats(&format!("logits.{k}"))).collect();
    (got, Tensors::open(fixture(&format!("mbjs/{case}/expected.safetensors"))).floats("logits.repaired"))
}

/// Their largest difference.
fn logits_off(folder: &Folder, model: &str, case: &str, more: &[&str]) -> f32 {
    let (got, wanted) = logits(folder, model, case, more);
    distance(&got, &wanted)
}

/// The share of the package's logits that is not met: the difference's square over theirs.
fn share_off(folder: &Folder, model: &str, case: &str, more: &[&str]) -> f32 {
    let (got, wanted) = logits(folder, model, case, more);
    let error: f32 = got.iter().zip(&wanted).map(|(a, b)| (a - b) * (a - b)).sum();
    error / wanted.iter().map(|b| b * b).sum::<f32>()
}

fn tolerance(case: &str) -> f32 {
    about(case)["tolerance"]["repaired"].as_f64().expect("a tolerance") as f32
}

#[test]
fn fresh_files_are_the_package_s() {
    let folder = Folder::new();
    for case in cases() {
        let config = fixture(&format!("mbjs/{case}/config.json"));
        let out = folder.path(&format!("{case}.mbjs"));
        assert!(bytes(&["init", "--config", &config, "--out", &out]).is_empty());
        let made = fs::read(&out).expect("a file");
        let recorded = &about(&case)["seeded_init"];
        assert_eq!(made.len() as u64, recorded["bytes"].as_u64().expect("bytes"), "{case}");
        let sum = u32::from_le_bytes(*made.last_chunk().expect("a checksum"));
        assert_eq!(u64::from(sum), recorded["crc32"].as_u64().expect("crc32"), "{case}");
    }
    // Files with just these weights, one of them in f16.
    for (case, flags) in [("m1-init", &[][..]), ("m2-init", &[]), ("m3-init", &[]), ("hy-all-init-v3", &["--fp16"])] {
        let (config, out) = (fixture(&format!("mbjs/{case}/config.json")), folder.path("x.mbjs"));
        bytes(&[&["init", "--config", &config, "--out", &out][..], flags].concat());
        let (made, recorded) = (fs::read(&out).expect("a file"), file(case, "model.mbjs").expect("a file"));
        assert!(made == recorded, "{case}");
        bytes(&[&["init", "--config", &config, "--out", &out, "--no-trailer"][..], flags].concat());
        assert!(fs::read(&out).expect("a file") == recorded[..recorded.len() - 8], "{case}");
    }
}

#[test]
fn what_is_made_can_be_opened() {
    let folder = Folder::new();
    let config = folder.write("c.json", r#"{"model": {"vocabSize": 16, "dModel": 8, "numLayers": 2}}"#);
    fs::create_dir(folder.path("new")).expect("a folder");
    let out = folder.path("new/model.mbjs");
    let made = command(&["init", "--config", &config, "--out", &out]).output().expect("selkie runs");
    assert!(made.status.success());
    // The seed is told, and kept.
    let beside: Value =
        serde_json::from_slice(&fs::read(folder.path("new/config.json")).expect("there")).expect("JSON");
    assert_eq!((&beside["vocabSize"], &beside["numLayers"]), (&16.into(), &2.into()));
    let told = String::from_utf8(made.stderr).expect("UTF-8");
    assert_eq!(told, format!("2 layers, 2890 values, seed {}\n", beside["seed"]));
    for model in [&out, &folder.path("new")] {
        bytes(&["logits", model, "--ids", "1,2", "--out", &folder.path("x.safetensors")]);
        assert!(text(&["plan", model]).contains("selective_scan"));
        assert!(text(&["inspect", model]).ends_with("mbjs: 2 layers of width 8, vocabulary 16, context not told\n"));
    }
    // Equal seeds, from the flag and from the configuration.
    let again = folder.path("again.mbjs");
    let seed = beside["seed"].to_string();
    bytes(&["init", "--config", &config, "--out", &again, "--seed", &seed]);
    assert!(fs::read(&again).expect("a file") == fs::read(&out).expect("a file"));
    bytes(&["init", "--config", &folder.path("new/config.json"), "--out", &again]);
    assert!(fs::read(&again).expect("a file") == fs::read(&out).expect("a file"));
    bytes(&["init", "--config", &folder.path("new/config.json"), "--out", &again, "--seed", "1"]);
    assert!(fs::read(&again).expect("a file") != fs::read(&out).expect("a file"));
    // As JavaScript wraps it.
    let wrapped = folder.path("wrapped.mbjs");
    bytes(&["init", "--config", &config, "--out", &wrapped, "--seed", "-4294967295.5"]);
    assert!(fs::read(&again).expect("a file") == fs::read(&wrapped).expect("a file"));
    // Another each time.
    bytes(&["init", "--config", &config, "--out", &again]);
    bytes(&["init", "--config", &config, "--out", &wrapped]);
    assert!(fs::read(&again).expect("a file") != fs::read(&wrapped).expect("a file"));
}

#[test]
fn a_configuration_that_is_there_stays() {
    let folder = Folder::new();
    let config = folder.write("c.json", r#"{"vocabSize": 16, "dModel": 8, "numLayers": 1, "seed": 1}"#);
    let other = folder.write("config.json", r#"{"vocabSize": 16, "dModel": 8, "numLayers": 2}"#);
    let before = fs::read(&other).expect("there");
    let out = folder.path("x.mbjs");
    let made = command(&["init", "--config", &config, "--out", &out]).output().expect("selkie runs");
    assert!(made.status.success());
    let told = String::from_utf8(made.stderr).expect("UTF-8");
    assert!(told.contains("is of another model and stays as it is") && told.contains("--config"), "{told}");
    assert_eq!(fs::read(&other).expect("there"), before);
    let line = failure(&["plan", &out]);
    assert!(line.contains("config.json") && line.contains("layers"), "{line}");
    assert!(text(&["plan", &out, "--config", &config]).contains("selective_scan"));
    // The same model, but for its seed.
    let made = command(&["init", "--config", &other, "--out", &out, "--seed", "2"]).output().expect("selkie runs");
    assert_eq!(String::from_utf8(made.stderr).expect("UTF-8"), "2 layers, 2890 values, seed 2\n");
    assert_eq!(fs::read(&other).expect("there"), before);
}

#[test]
fn what_cannot_be_made() {
    let folder = Folder::new();
    let out = folder.path("x.mbjs");
    for (config, wanted) in [
        (r#"{"dModel": 8, "numLayers": 1}"#, "`vocabSize`: missing"),
        (
            r#"{"vocabSize": 8, "dModel": 8, "numLayers": 2, "layers": [{"type": "mamba1"}]}"#,
            "1 layers, but `numLayers` is 2",
        ),
        (r#"{"vocabSize": 8, "dModel": 8, "numLayers": 1, "layers": [{"type": "mamba4"}]}"#, "`mamba4`"),
        (
            r#"{"vocabSize": 8, "dModel": 9, "numLayers": 1, "layers": [{"type": "attention"}]}"#,
            "4 heads do not divide the width 9",
        ),
        (
            r#"{"vocabSize": 8, "dModel": 8, "numLayers": 1, "nGroups": 5, "layers": [{"type": "mamba2"}]}"#,
            "5 groups, but only 4 heads",
        ),
        ("{", "EOF"),
    ] {
        let config = folder.write("c.json", config);
        let line = failure(&["init", "--config", &config, "--out", &out]);
        assert!(line.starts_with(&config) && line.contains(wanted), "{line}");
    }
    let config = folder.write("c.json", r#"{"vocabSize": 8, "dModel": 8, "numLayers": 1}"#);
    assert!(failure(&["init", "--config", &config, "--out", &config]).contains("written over itself"));
    let other = folder.path("x.gguf");
    assert!(failure(&["init", "--config", &config, "--out", &other]).contains("ends in .mbjs or .bin"));
    assert!(
        wrong_usage(&["init", "--config", &config, "--out", &out, "--seed", "many"]).contains("`many` is no number")
    );
    assert_eq!(fs::read_dir(folder.path("")).expect("a folder").count(), 1);
}

#[test]
fn logits_are_the_package_s() {
    let folder = Folder::new();
    for case in cases() {
        let config = fixture(&format!("mbjs/{case}/config.json"));
        // By the folder, by the file, and by both names apart.
        let bin = folder.copy(&format!("mbjs/{case}/model.mbjs"), "weights.bin");
        for (model, more) in [
            (fixture(&format!("mbjs/{case}")), &[][..]),
            (fixture(&format!("mbjs/{case}/model.mbjs")), &["--backend", "reference"]),
            (bin, &["--config", &config]),
        ] {
            let off = logits_off(&folder, &model, &case, more);
            assert!(off <= tolerance(&case), "{model}: {off}");
        }
    }
}

#[test]
fn embeddings_are_the_package_s() {
    for case in cases() {
        let about = about(&case);
        let row = &ids(&expected(&case)["ids"])[..about["seqLen"].as_u64().expect("seqLen") as usize];
        let made = json(&["embed", &fixture(&format!("mbjs/{case}")), "--ids", &typed(row)]);
        let got: Vec<f32> = serde_json::from_value(made["embedding"].clone()).expect("numbers");
        let wanted = Tensors::open(fixture(&format!("mbjs/{case}/expected.safetensors"))).floats("embed.repaired");
        assert!(distance(&got, &wanted) <= about["tolerance"]["embed"].as_f64().expect("a tolerance") as f32, "{case}");
    }
    let made = json(&["embed", &fixture("mbjs/train-m1"), "--ids", ""]);
    let got: Vec<f32> = serde_json::from_value(made["embedding"].clone()).expect("numbers");
    assert!(!got.is_empty() && got.iter().all(|&v| v == 0.0));
    let line = failure(&["embed", &fixture("mbjs/train-m1"), "a text"]);
    assert!(line.contains("has no tokenizer"), "{line}");
}

#[test]
fn greedy_tokens_are_the_package_s() {
    let mut compared = 0;
    for case in cases() {
        let expected = expected(&case);
        let Some(generate) = expected.get("generate") else { continue };
        let (prompt, tokens) = (ids(&generate["prompt"]), ids(&generate["greedy"]["repaired"]));
        let n = (tokens.len() - prompt.len()).to_string();
        for more in [&["--exact"][..], &[], &["--top-k", "1", "--temperature", "1"]] {
            let model = fixture(&format!("mbjs/{case}"));
            let flags = ["generate", &model, "--ids", &typed(&prompt), "-n", &n, "--json", "--temperature", "0"];
            let flags = if more.len() > 2 { &flags[..7] } else { &flags[..] };
            let made = json(&[flags, more].concat());
            assert_eq!(ids(&made["ids"]), tokens[prompt.len()..], "{case} {more:?}");
        }
        compared += 1;
    }
    assert!(compared >= 4);
}

#[test]
fn ids_that_there_are_not() {
    let model = fixture("mbjs/train-m1");
    let line = failure(&["generate", &model, "--ids", "1,9999"]);
    assert!(line.contains("token id 9999 is outside the vocabulary"), "{line}");
    assert!(failure(&["generate", &model, "--ids", ""]).contains("the prompt is empty"));
    assert!(failure(&["embed", &model, "--ids", "9999"]).contains("9999"));
}

/// The configuration's `eosId` ends a text, unless that is to be ignored.
#[test]
fn texts_end() {
    let folder = Folder::new();
    let generate = &expected("m3-scaled")["generate"];
    let (prompt, tokens) = (ids(&generate["prompt"]), ids(&generate["greedy"]["repaired"]));
    let mut config = about("m3-scaled");
    config["model"]["eosId"] = tokens[prompt.len() + 4].into();
    let config = folder.write("c.json", config.to_string());
    let model = fixture("mbjs/m3-scaled/model.mbjs");
    let args =
        ["generate", &model, "--config", &config, "--ids", &typed(&prompt), "-n", "9", "--temperature", "0", "--json"];
    let made = json(&args);
    assert_eq!((ids(&made["ids"]), &made["finish"]), (tokens[prompt.len()..][..5].to_vec(), &"stop".into()));
    let made = json(&[&args[..], &["--ignore-eos"]].concat());
    assert_eq!((ids(&made["ids"]), &made["finish"]), (tokens[prompt.len()..][..9].to_vec(), &"length".into()));
}

#[test]
fn files_and_configurations_that_disagree() {
    let folder = Folder::new();
    let model = folder.copy("mbjs/hy-all-batch2/model.mbjs", "model.mbjs");
    let line = failure(&["plan", &model]);
    assert!(line.starts_with(&model) && line.contains("config.json") && line.contains("--config"), "{line}");
    let changed = |key: &str, value: Value| {
        let mut config = about("hy-all-batch2")["model"].clone();
        config[key] = value;
        folder.write("config.json", config.to_string());
        failure(&["logits", &model, "--ids", "1", "--out", &folder.path("x.safetensors")])
    };
    for (key, value, wanted) in [
        ("vocabSize", 97.into(), vec!["embedding", "3072", "3104"]),
        ("dState", 6.into(), vec!["layer0.wXProj", "768", "896"]),
        ("nGroups", 2.into(), vec!["layer1.wInProj"]),
        ("dConv", 3.into(), vec!["layer0.wConv", "256", "192"]),
        (
            "layers",
            serde_json::json!([{"type": "mamba1"}, {"type": "mamba1"}, {"type": "mamba3"}, {"type": "attention"}]),
            vec!["layer 1", "mamba2", "mamba1"],
        ),
    ] {
        let line = changed(key, value);
        assert!(line.starts_with(&model) && wanted.iter().all(|word| line.contains(word)), "{key}: {line}");
    }
    let mut damaged = file("hy-all-batch2", "model.mbjs").expect("a file");
    damaged[1000] ^= 4;
    folder.write("model.mbjs", &damaged);
    folder.copy("mbjs/hy-all-batch2/config.json", "config.json");
    let line = failure(&["plan", &model]);
    assert!(line.contains("checksum") && line.contains("damaged"), "{line}");
    folder.write("model.mbjs", &damaged[..5000]);
    assert!(failure(&["plan", &model]).starts_with(&model));
    for name in ["x.bin", "x.mbjs"] {
        let path = folder.write(name, b"PK\x03\x04: as PyTorch's files begin");
        let line = failure(&["plan", &path]);
        assert!(line.starts_with(&path) && line.contains("not an MBJS file"), "{line}");
    }
}

#[test]
fn conversions_come_back_byte_for_byte() {
    let folder = Folder::new();
    for case in cases() {
        for name in ["model.mbjs", "model.v2.mbjs", "model.v3.mbjs"] {
            let Some(wanted) = file(&case, name) else { continue };
            let from = fixture(&format!("mbjs/{case}/{name}"));
            for ending in ["gguf", "safetensors"] {
                let (there, back) = (folder.path(&format!("there.{ending}")), folder.path("back.mbjs"));
                bytes(&["convert", &from, &there]);
                bytes(&["convert", &there, &back]);
                assert!(fs::read(&back).expect("a file") == wanted, "{case}/{name} by way of {ending}");
                if name == "model.mbjs" {
                    let off = logits_off(&folder, &there, &case, &[]);
                    assert!(off <= tolerance(&case), "{there}: {off}");
                }
            }
            let copy = folder.path("copy.mbjs");
            bytes(&["convert", &from, &copy]);
            assert!(fs::read(&copy).expect("a file") == wanted, "{case}/{name}");
        }
        fs::remove_file(folder.path("config.json")).expect("put there with the first file");
    }
}

#[test]
fn types_change_between_versions() {
    let folder = Folder::new();
    let mut compared = 0;
    for case in cases() {
        let pairs = [("model.mbjs", "model.v3.mbjs"), ("model.v2.mbjs", "model.mbjs")];
        for (from, to) in pairs {
            let (Some(_), Some(half)) = (file(&case, from), file(&case, to)) else { continue };
            let out = folder.path("half.mbjs");
            bytes(&["convert", &fixture(&format!("mbjs/{case}/{from}")), &out, "--type", "f16"]);
            assert!(fs::read(&out).expect("a file") == half, "{case}");
            // And by way of GGUF.
            let there = folder.path("there.gguf");
            bytes(&["convert", &fixture(&format!("mbjs/{case}/{from}")), &there]);
            bytes(&["convert", &there, &out, "--type", "f16"]);
            assert!(fs::read(&out).expect("a file") == half, "{case}");
            bytes(&["convert", &out, &folder.path("full.mbjs"), "--type", "f32"]);
            assert!(fs::read(folder.path("full.mbjs")).expect("a file").len() > 3 * half.len() / 2);
            fs::remove_file(folder.path("config.json")).expect("put there with the first file");
            compared += 1;
        }
    }
    assert_eq!(compared, 3);
}

#[test]
fn quantised_hybrids_run() {
    let folder = Folder::new();
    for case in ["hy-jamba", "hy-all-batch2", "m1-scaled", "m2-scaled", "m3-scaled", "at-ffn"] {
        let exact = fixture(&format!("mbjs/{case}"));
        // These weights were scaled so that every one matters, which rounding feels more than in trained models.
        for (dtype, most) in [("f16", 1e-5), ("q8_0", 0.005), ("q5_1", 0.15), ("q4_0", 0.5)] {
            let out = folder.path(&format!("{dtype}.gguf"));
            bytes(&["convert", &exact, &out, "--type", dtype]);
            for more in [&[][..], &["--fast"], &["--backend", "reference"]] {
                let off = share_off(&folder, &out, case, more);
                assert!(off > 0.0 && off < most, "{case} {dtype} {more:?}: {off}");
            }
        }
        let shown = json(&["inspect", &folder.path("q8_0.gguf"), "--json"]);
        let stored = if about(case)["file"]["version"] == 3 { "f16" } else { "f32" };
        for tensor in shown["tensors"].as_array().expect("tensors") {
            let (name, shape) =
                (tensor["name"].as_str().expect("a name"), tensor["shape"].as_array().expect("a shape"));
            let row = shape.last().and_then(Value::as_u64).expect("a size");
            let small =
                shape.len() < 2 || name.ends_with("A_log") || name.ends_with("wConv") || !row.is_multiple_of(32);
            assert_eq!(tensor["type"], if small { stored } else { "q8_0" }, "{case} {name}");
        }
        // Decoded, it is an MBJS file again, of other values.
        bytes(&["convert", &folder.path("q8_0.gguf"), &folder.path("back.mbjs")]);
        let off = share_off(&folder, &folder.path("back.mbjs"), case, &[]);
        assert!(off > 0.0 && off < 0.005, "{case}: {off}");
        fs::remove_file(folder.path("config.json")).expect("put there with the file");
    }
}

#[test]
fn hybrids_that_cannot_be_converted() {
    let folder = Folder::new();
    let model = fixture("mbjs/m1-init");
    for (output, dtype, wanted) in
        [("x.mbjs", "q8_0", "MBJS files have no type q8_0"), ("x.safetensors", "q8_0", "safetensors has no type q8_0")]
    {
        let line = failure(&["convert", &model, &folder.path(output), "--type", dtype]);
        assert!(line.contains(wanted), "{line}");
    }
    let mut large = file("m1-v1-file", "model.mbjs").expect("a file");
    let end = large.len();
    large[end - 4..].copy_from_slice(&70_000f32.to_le_bytes());
    let large = folder.write("large.mbjs", large);
    folder.copy("mbjs/m1-v1-file/config.json", "config.json");
    let half = folder.path("half.mbjs");
    let line = failure(&["convert", &large, &half, "--type", "f16"]);
    assert!(line.contains("final_norm") && line.contains("70000") && line.contains("f16"), "{line}");
    assert!(!Path::new(&half).exists());
}
