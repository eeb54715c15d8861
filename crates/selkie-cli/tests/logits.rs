//! `selkie logits`, `selkie embed`, `selkie perplexity`: numbers, held to the fixtures.

mod common;

use common::{Folder, Tensors, bytes, distance, fixture, fixture_json, json, json_lines, text, typed};

const MODEL: &str = "hf/llama-gqa/model.gguf";

fn tolerance(case: &str) -> f32 {
    fixture_json(&format!("hf/{case}/expected.json"))["tolerance_abs"].as_f64().expect("a number") as f32
}

/// Runs `logits` and gives what it wrote.
fn logits(folder: &Folder, args: &[&str]) -> Tensors {
    let out = folder.path("out.safetensors");
    assert!(bytes(&[&["logits"], args, &["--out", &out]].concat()).is_empty());
    Tensors::open(out)
}

#[test]
fn every_form_of_a_model_gives_the_logits_of_the_fixtures() {
    let folder = Folder::new();
    let legacy = fixture("hf/llama-gqa/config.legacy.json");
    for (case, file, expected, more) in [
        ("llama-gqa", "/model.gguf", "expected", &[][..]),
        ("llama-gqa", "/model-q4_0.gguf", "expected-q4_0", &[]),
        ("llama-gqa", "/model-q8_0.gguf", "expected-q8_0", &["--threads", "2"]),
        ("llama-gqa", "/model-f16.gguf", "expected-f16", &[]),
        ("llama-gqa", "", "expected", &[]),
        ("llama-gqa", "", "expected", &["--config", &legacy]),
        ("llama-gqa", "/model.safetensors", "expected", &["--chunk", "5"]),
        ("llama-gqa", "/model.gguf", "expected", &["--chunk", "1", "--backend", "reference"]),
        ("llama-bf16", "", "expected", &["--chunk", "100"]),
        ("gemma3-text", "/model.gguf", "expected", &["--chunk", "7"]),
        ("k256-llama", "/model-q4_k_m.gguf", "expected-q4_k_m", &["--backend", "cpu"]),
    ] {
        let wanted = Tensors::open(fixture(&format!("hf/{case}/{expected}.safetensors")));
        let (model, ids) = (fixture(&format!("hf/{case}{file}")), wanted.typed("seq.input_ids"));
        let args = [&[&model, "--ids", &ids][..], more].concat();
        let found = logits(&folder, &args);
        assert_eq!(found.names(), ["ids", "logits"]);
        assert_eq!(found.ids("ids"), wanted.ids("seq.input_ids"));
        assert_eq!(found.shape("logits"), wanted.shape("seq.logits"));
        let distance = distance(&found.floats("logits"), &wanted.floats("seq.logits"));
        assert!(distance <= tolerance(case), "{args:?}: {distance}");
    }
}

#[test]
fn a_batch_has_a_pair_of_tensors_for_each_list() {
    let folder = Folder::new();
    let wanted = Tensors::open(fixture("hf/llama-gqa/expected.safetensors"));
    let (pair, one) = (wanted.ids("batch.input_ids"), wanted.ids("one.input_ids"));
    let lists = folder.write("lists.json", format!("[{:?}, {one:?}, {:?}]", &pair[..8], &pair[8..]));
    let found = logits(&folder, &[&fixture(MODEL), "--batch", &lists]);
    assert_eq!(found.names(), ["ids.0", "ids.1", "ids.2", "logits.0", "logits.1", "logits.2"]);
    assert_eq!(found.ids("ids.2"), pair[8..]);
    let both = [found.floats("logits.0"), found.floats("logits.2")].concat();
    assert!(distance(&both, &wanted.floats("batch.logits")) <= tolerance("llama-gqa"));
    assert!(distance(&found.floats("logits.1"), &wanted.floats("one.logits")) <= tolerance("llama-gqa"));
}

#[test]
fn a_text_is_its_tokens() {
    let folder = Folder::new();
    let model = fixture(MODEL);
    let ids = text(&["tokenize", &model, "the other <s>", "--add-special"]);
    let of_text = logits(&folder, &[&model, "--prompt", "the other <s>"]);
    let of_ids = logits(&folder, &[&model, "--ids", ids.trim()]);
    assert_eq!(of_text.ids("ids"), of_ids.ids("ids"));
    assert_eq!(of_text.floats("logits"), of_ids.floats("logits"));
    // Rounded activations give other numbers, near these.
    let fast = logits(&folder, &[&fixture("hf/llama-gqa/model-q8_0.gguf"), "--ids", ids.trim(), "--fast"]);
    let exact = logits(&folder, &[&fixture("hf/llama-gqa/model-q8_0.gguf"), "--ids", ids.trim()]);
    let distance = distance(&fast.floats("logits"), &exact.floats("logits"));
    assert!(distance > 0.0 && distance < 1.0, "{distance}");
}

#[test]
fn embeddings_are_lines_of_length_one() {
    let model = fixture(MODEL);
    let vectors = |args: &[&str]| -> Vec<Vec<f32>> {
        let lines = json_lines(&[&["embed", &model], args].concat());
        lines.into_iter().map(|line| serde_json::from_value(line["embedding"].clone()).expect("numbers")).collect()
    };
    let found = vectors(&["the other", "and another one"]);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64]);
    for vector in &found {
        assert!((vector.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let ids = text(&["tokenize", &model, "the other", "--add-special"]);
    assert_eq!(vectors(&["--ids", ids.trim()])[0], found[0]);
    let reference = vectors(&["the other", "--backend", "reference"]);
    assert!(distance(&reference[0], &found[0]) < 1e-5);
}

#[test]
fn perplexity_is_that_of_the_logits() {
    let folder = Folder::new();
    let model = fixture(MODEL);
    let whole = std::fs::read_to_string(fixture("gguf/perplexity.txt")).expect("a text");
    let file = folder.write("text.txt", &whole.as_bytes()[..400]);
    let made = json(&["perplexity", &model, &file, "--context", "32", "--json"]);
    let tokenized = json(&["tokenize", &model, &whole[..400], "--add-special", "--json"]);
    let ids: Vec<u32> = serde_json::from_value(tokenized["ids"].clone()).expect("ids");
    let windows = ids.len() / 32;
    assert!(windows > 2);
    assert_eq!((&made["windows"], &made["scored"]), (&windows.into(), &(windows * 15).into()));
    // The first window anew: positions 16 to 30 predict what follows them.
    let logits = logits(&folder, &[&model, "--ids", &typed(&ids[..32])]).floats("logits");
    let surprise = |position: usize| {
        let row = &logits[position * 272..][..272];
        let sum: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
        sum.ln() - f64::from(row[ids[position + 1] as usize])
    };
    let wanted = ((16..31).map(surprise).sum::<f64>() / 15.0).exp();
    let found = made["running"][0].as_f64().expect("a number");
    assert!((found / wanted - 1.0).abs() < 1e-4, "{found} {wanted}");
    let line = text(&["perplexity", &model, &file, "--context", "32"]);
    assert!(
        (line.trim().parse::<f64>().expect("a number") / made["perplexity"].as_f64().expect("one") - 1.0).abs() < 1e-5
    );
}
