//! `selkie inspect`, `plan`, `convert`, `bench`, `list`, `devices`.

mod common;

use std::fs;

use common::{Folder, Tensors, bytes, distance, failure, fixture, json, json_lines, text};

const MODEL: &str = "hf/llama-gqa/model.gguf";

#[test]
fn inspect_tells_settings_tensors_and_sizes() {
    let shown = text(&["inspect", &fixture(MODEL)]);
    assert!(shown.contains("llama.block_count") && shown.contains("blk.1.ffn_down.weight"), "{shown}");
    assert!(shown.ends_with("llama: 2 layers of width 64, vocabulary 272, context 128\n"), "{shown}");
    assert!(!text(&["inspect", &fixture(MODEL), "--no-tensors"]).contains("blk.1.ffn_down.weight"));
    let made = json(&["inspect", &fixture("hf/llama-bf16"), "--json"]);
    assert_eq!(made["files"].as_array().expect("files").len(), 3);
    assert_eq!((&made["model"]["architecture"], &made["model"]["d_model"]), (&"llama".into(), &32.into()));
    let tensor = &made["tensors"][0];
    assert!(tensor["name"].is_string() && tensor["shape"].is_array() && tensor["bytes"].is_number());
    assert_eq!(tensor["type"], "bf16");
    let legacy = fixture("hf/llama-gqa/config.legacy.json");
    let made = json(&["inspect", &fixture("hf/llama-gqa"), "--config", &legacy, "--json"]);
    assert_eq!(made["settings"]["rope_theta"], "10000.0");
}

#[test]
fn files_that_are_no_model_are_inspected_too() {
    let expected = fixture("hf/llama-gqa/expected.safetensors");
    let shown = text(&["inspect", &expected]);
    assert!(shown.contains("seq.logits") && shown.contains("\nnot a model that can run here: "), "{shown}");
    assert_eq!(json(&["inspect", &expected, "--json"])["model"], serde_json::Value::Null);
}

#[test]
fn plan_is_a_list_of_the_forward_pass() {
    let plain = text(&["plan", &fixture(MODEL)]);
    for line in ["layers 0 to 1", "embed(ids, token_embd)", "rms_norm(", "rope(", "attention(", "linear(n, output)"] {
        assert!(plain.contains(line), "{line} is not in\n{plain}");
    }
    assert_ne!(plain, text(&["plan", &fixture(MODEL), "--fused"]));
    let made = json(&["plan", &fixture(MODEL), "--json"]);
    assert_eq!(made["text"], plain);
    // Another format of the same model is the same list.
    assert_eq!(made["ops"], json(&["plan", &fixture("hf/llama-gqa"), "--json"])["ops"]);
    assert_eq!(made["ops"][0], "embed");
    assert_eq!(made["layers"].as_array().map(Vec::len), Some(2));
}

/// The logits of the first fixture ids under another model.
fn logits(folder: &Folder, model: &str) -> Vec<f32> {
    let ids = Tensors::open(fixture("hf/llama-gqa/expected.safetensors")).typed("seq.input_ids");
    let out = folder.path("logits.safetensors");
    bytes(&["logits", model, "--ids", &ids, "--out", &out]);
    Tensors::open(out).floats("logits")
}

#[test]
fn converted_files_run() {
    let folder = Folder::new();
    for (dtype, twin) in [("f16", "expected-f16"), ("f32", "expected")] {
        let out = folder.path(&format!("{dtype}.gguf"));
        assert!(bytes(&["convert", &fixture(MODEL), &out, "--type", dtype]).is_empty());
        let wanted = Tensors::open(fixture(&format!("hf/llama-gqa/{twin}.safetensors"))).floats("seq.logits");
        let distance = distance(&logits(&folder, &out), &wanted);
        assert!(distance < 4e-4, "{dtype}: {distance}");
    }
    // Other types have several good encoders, so there are no numbers to be equal to.
    let exact = logits(&folder, &fixture(MODEL));
    for (dtype, most) in
        [("q8_0", 0.002), ("bf16", 0.002), ("q5_0", 0.05), ("q5_1", 0.05), ("q4_0", 0.2), ("q4_1", 0.2)]
    {
        let out = folder.path(&format!("{dtype}.gguf"));
        bytes(&["convert", &fixture(MODEL), &out, "--type", dtype]);
        let found = logits(&folder, &out);
        let error: f32 = found.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum();
        let share = error / exact.iter().map(|b| b * b).sum::<f32>();
        assert!(share > 0.0 && share < most, "{dtype}: {share}");
    }
    let out = folder.path("q4_k.gguf");
    bytes(&["convert", &fixture("hf/k256-llama/model-q4_k_m.gguf"), &out, "--type", "q5_K"]);
    assert!(text(&["inspect", &out]).contains("q5_k"));
}

#[test]
fn safetensors_convert_to_safetensors() {
    let folder = Folder::new();
    folder.copy("hf/llama-gqa/config.json", "config.json");
    let out = folder.path("model.safetensors");
    bytes(&["convert", &fixture("hf/llama-gqa"), &out, "--type", "bf16"]);
    assert!(fs::metadata(&out).expect("there").len() < 200_000);
    assert_eq!(logits(&folder, &folder.path("")), logits(&folder, &out));
    // Shards become one file, and nothing else changes.
    bytes(&["convert", &fixture("hf/llama-bf16"), &out]);
    let (one, shards) = (Tensors::open(&out), Tensors::open(fixture("hf/llama-bf16")));
    assert_eq!(one.names(), shards.names());
    assert!(one.names().iter().all(|name| one.floats(name) == shards.floats(name)));
}

#[test]
fn conversions_that_cannot_be_leave_no_file() {
    let folder = Folder::new();
    let here = folder.copy(MODEL, "here.gguf");
    for (args, why) in [
        (vec![here.clone(), folder.path("x.zip")], "the ending has to be .gguf, .safetensors or .mbjs"),
        (vec![here.clone(), folder.path("x.mbjs")], "hold only the npm package's hybrids"),
        (vec![here.clone(), here.clone()], "would be written over itself"),
        (vec![here.clone(), folder.path("x.safetensors")], "not possible yet"),
        (vec![fixture("hf/llama-gqa"), folder.path("x.safetensors"), "--type=q8_0".into()], "has no type"),
        (vec![here.clone(), folder.path("no/x.gguf")], "No such file"),
    ] {
        let args: Vec<&str> = ["convert"].into_iter().chain(args.iter().map(String::as_str)).collect();
        let line = failure(&args);
        assert!(line.contains(why), "{line}");
    }
    assert_eq!(fs::read_dir(folder.path("")).expect("a folder").count(), 1);
}

#[test]
fn bench_measures() {
    let lines = json_lines(&["bench", &fixture(MODEL), "-p", "32", "-n", "8", "-r", "2", "--json", "--kernels"]);
    let names: Vec<_> = lines.iter().map(|line| line["test"].as_str().expect("a name")).collect();
    assert_eq!(names, ["prefill 32", "decode 8"]);
    for line in &lines {
        assert_eq!(line["runs"].as_array().map(Vec::len), Some(2));
        assert!(line["tokens_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
        let kernels = line["kernels"].as_array().expect("kernels");
        let attention = kernels.iter().find(|kernel| kernel["op"] == "attention").expect("attention");
        let passes = if line["test"] == "decode 8" { 8 } else { 1 };
        assert_eq!(attention["runs"], 2 * passes);
        assert!(attention["ms"].as_f64().is_some_and(|ms| ms > 0.0));
    }
    assert!(lines[1]["bandwidth_share"].is_number());
    assert_eq!(lines[1]["tokens_at_once"], 1);
    let shown = text(&["bench", &fixture(MODEL), "-p", "0", "-n", "4", "-r", "1", "--kernels"]);
    assert!(shown.contains("decode 4") && !shown.contains("prefill") && shown.contains("  attention"), "{shown}");
}

#[test]
fn list_and_devices_tell_what_there_is() {
    let made = json(&["list", "--json"]);
    let named = made["named"].as_array().expect("names");
    assert!(named.iter().any(|model| model["name"] == "smollm2" && model["sha256"].is_string()));
    assert!(made["here"].is_array());
    assert!(text(&["list"]).contains("smollm2"));
    let made = json(&["devices", "--json"]);
    assert!(made["cpu"]["threads"].as_u64().is_some_and(|n| n > 0));
    assert!(made["cpu"]["instruction_sets"].is_array());
    assert!(text(&["devices"]).starts_with("cpu "));
}

/// Fixtures whose safetensors have a GGUF form.
const BOTH: &[&str] = &[
    "falcon-mamba",
    "gptoss",
    "granitehybrid-dense",
    "granitemoehybrid",
    "lfm2",
    "lfm2-moe",
    "olmoe",
    "qwen3moe-sparse",
    "ssm-mamba1",
    "ssm-mamba2",
    "ssm-mamba3-mimo",
    "ssm-mamba3-mimo-normed",
    "ssm-mamba3-siso",
    "gemma2",
    "gemma3-text",
    "granite",
    "granitemoe",
    "jamba",
    "llama-bf16",
    "llama-f16",
    "llama-gqa",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
    "llama-tied-bias",
    "mamba",
    "mamba2-g1",
    "mamba2-g2",
    "mistral-swa",
    "mixtral",
    "olmo2",
    "phi3",
    "qwen2-bias",
    "qwen2moe-shared",
    "qwen3-qknorm",
    "qwen3moe",
    "smollm3-nope",
];

#[test]
fn safetensors_convert_to_gguf() {
    let folder = Folder::new();
    let mut failed = vec![];
    for name in BOTH {
        let out = folder.path(&format!("{name}.gguf"));
        let made = common::command(&["convert", &fixture(&format!("hf/{name}")), &out, "--type", "f32"]).output();
        let made = made.expect("selkie runs");
        if !made.status.success() {
            failed.push(String::from_utf8_lossy(&made.stderr).into_owned());
            continue;
        }
        let expected = Tensors::open(fixture(&format!("hf/{name}/expected.safetensors")));
        let logits_file = folder.path("logits.safetensors");
        bytes(&["logits", &out, "--ids", &expected.typed("seq.input_ids"), "--out", &logits_file]);
        let about = common::fixture_json(&format!("hf/{name}/expected.json"));
        let allowed = about["tolerance_abs"].as_f64().expect("a tolerance") as f32;
        let off = distance(&Tensors::open(&logits_file).floats("logits"), &expected.floats("seq.logits"));
        if off > allowed {
            failed.push(format!("{name}: off by {off}"));
        }
        same_as_others(name, &out, &mut failed);
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// What the format has no words for is refused, and not lost on the way.
#[test]
fn what_gguf_cannot_express_is_refused() {
    let folder = Folder::new();
    let out = folder.path("x.gguf");
    for name in
        ["bamba", "deepseek2-lite", "deepseek3-mla", "falcon-h1", "nemotron-h", "qwen3next", "ssm-mamba3-attention"]
    {
        let line = failure(&["convert", &fixture(&format!("hf/{name}")), &out]);
        assert!(line.contains(&format!("{name}: GGUF cannot express")), "{line}");
    }
    let changed = |key: &str, value: serde_json::Value| {
        let mut config = common::fixture_json("hf/llama-gqa/config.json");
        config[key] = value;
        let config = folder.write("c.json", config.to_string());
        failure(&["convert", &fixture("hf/llama-gqa"), &out, "--config", &config])
    };
    let line = changed("hidden_act", "gelu".into());
    assert!(line.contains("GGUF cannot express") && line.contains("GeluErf") && line.contains("Silu"), "{line}");
    let dynamic = serde_json::json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    assert!(changed("rope_parameters", dynamic).contains("frequencies that change with the length"));
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn tokenizers_go_along() {
    let folder = Folder::new();
    for (from, name) in [
        ("llama-gqa/config.json", "config.json"),
        ("llama-gqa/model.safetensors", "model.safetensors"),
        ("tokenizer/tokenizer.json", "tokenizer.json"),
        ("tokenizer/tokenizer_config.json", "tokenizer_config.json"),
    ] {
        folder.copy(&format!("hf/{from}"), name);
    }
    folder.write("chat_template.jinja", common::TEMPLATE);
    let out = folder.path("x.gguf");
    bytes(&["convert", &folder.path(""), &out, "--type", "q8_0"]);
    let messages = folder.write("messages.json", r#"[{"role": "user", "content": "the other"}]"#);
    // In the form of other readers too, as llama.cpp's converter writes it.
    let settings = |path: &str| json(&["inspect", path, "--json"])["settings"].clone();
    let (ours, theirs) = (settings(&out), settings(&fixture("hf/llama-gqa/model.gguf")));
    let mut compared = 0;
    for (key, value) in theirs.as_object().expect("settings").iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        assert_eq!(&ours[key], value, "{key}");
        compared += 1;
    }
    assert!(compared > 7, "{compared}");
    for words in [&["tokenize", "--add-special", "the other one"][..], &["template", "--messages", &messages]] {
        let run = |model: &str| text(&[&[words[0], model], &words[1..]].concat());
        assert_eq!(run(&folder.path("")), run(&out), "{words:?}");
    }
    assert!(!text(&["generate", &out, "the other", "-n", "4"]).is_empty());
}

/// The file has the tensors that llama.cpp's converter gives, and no setting of another value.
fn same_as_others(name: &str, ours: &str, failed: &mut Vec<String>) {
    let theirs = fixture(&format!("hf/{name}/model.gguf"));
    // There llama.cpp reorders queries and keys that do not turn, which changes nothing.
    if !std::path::Path::new(&theirs).exists() || name == "granitemoehybrid" {
        return;
    }
    let (a, b) = (Tensors::open(ours), Tensors::open(&theirs));
    if a.names() != b.names() {
        let missing: Vec<_> = b.names().into_iter().filter(|n| !a.names().contains(n)).map(str::to_owned).collect();
        let more: Vec<_> = a.names().into_iter().filter(|n| !b.names().contains(n)).map(str::to_owned).collect();
        failed.push(format!("{name}: without {missing:?}, but with {more:?}"));
        return;
    }
    for tensor in b.names() {
        let (x, y) = (a.floats(tensor), b.floats(tensor));
        if a.shape(tensor) != b.shape(tensor) || x.iter().zip(&y).any(|(x, y)| (x - y).abs() > 1e-6 * y.abs().max(1.0))
        {
            failed.push(format!("{name}: {tensor} {:?}, not {:?}", a.shape(tensor), b.shape(tensor)));
        }
    }
    let settings = |path: &str| json(&["inspect", path, "--json"])["settings"].clone();
    let (x, y) = (settings(ours), settings(&theirs));
    for (key, value) in x.as_object().expect("settings") {
        if !key.starts_with("general.") && !key.starts_with("tokenizer.") && y.get(key).is_some_and(|y| y != value) {
            failed.push(format!("{name}: {key} is {value}, not {}", y[key]));
        }
    }
}
