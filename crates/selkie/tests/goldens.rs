//! Two real models against what llama.cpp and an independent f64 pass computed (`fixtures/gguf`).
//!
//! The models are fetched once, as a user's would be: by name, into the cache.

use std::{fs, ops::ControlFlow, path::PathBuf};

use selkie::{
    GenerateOptions, Model, OpenOptions,
    model_spec::Want,
    models::{self, FetchOptions, Quiet},
    text::EncodeOptions,
};
use serde_json::Value;

fn fixture(path: &str) -> Value {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gguf")).join(path);
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).expect("JSON")
}

fn open(name: &str, exact: bool) -> Model {
    let model = models::resolve(name).expect("a name");
    let path = models::fetch(&model, &FetchOptions::from_env(), &mut Quiet)
        .unwrap_or_else(|e| panic!("the tests need {name}, which `selkie pull {name}` brings: {e}"));
    Model::open(&path, &OpenOptions { exact, ..OpenOptions::default() }).expect("a model")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn float(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Logits of every position, in one pass.
fn logits(model: &mut Model, ids: &[u32], outputs: &[usize]) -> Vec<Vec<f32>> {
    let mut session = model.session(ids.len()).expect("a session");
    let width = model.spec().vocab_size;
    let values = model.rows(&mut session, ids, outputs, Want::Logits).expect("logits");
    values.chunks_exact(width).map(<[f32]>::to_vec).collect()
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&l| (f64::from(l) - max).exp()).sum::<f64>().ln()
}

/// Our exact logits are those of `file`; our rounded ones stay as near to them as llama.cpp's own do.
fn check_logits(name: &str, file: &str, tolerance: f64, rms_allowed: f64, kl_allowed: f64) {
    let (mut exact, mut fast) = (open(name, true), open(name, false));
    for case in fixture(file).as_array().expect("cases") {
        let what = format!("{name} {}", case["name"]);
        let at = case["at"].as_array().expect("positions");
        let outputs: Vec<usize> = at.iter().map(|p| p["pos"].as_u64().expect("pos") as usize).collect();
        let ids = ids(&case["ids"]);
        let ours = logits(&mut exact, &ids, &outputs);
        for (ours, wanted) in ours.iter().zip(at) {
            for pair in wanted["top"].as_array().expect("top") {
                let id = pair[0].as_u64().expect("an id") as usize;
                let off = (f64::from(ours[id]) - float(&pair[1])).abs();
                assert!(off < tolerance, "{what} at {}: logit of {id} off by {off}", wanted["pos"]);
            }
            for (i, fixed) in wanted["fixed"].as_array().into_iter().flatten().enumerate() {
                let off = (f64::from(ours[i * (ours.len() - 1) / 49]) - float(fixed)).abs();
                assert!(off < tolerance, "{what} at {}: fixed logit {i} off by {off}", wanted["pos"]);
            }
            let off = (log_sum_exp(ours) - float(&wanted["logsumexp"])).abs();
            assert!(off < tolerance, "{what} at {}: logsumexp off by {off}", wanted["pos"]);
            let best = selkie::sampling::argmax(ours);
            assert_eq!(u64::from(best), wanted["top"][0][0].as_u64().expect("an id"), "{what}: the likeliest token");
        }
        let last = ours.last().expect("a position");
        let rounded = logits(&mut fast, &ids, &outputs).pop().expect("a position");
        let square: f64 = last.iter().zip(&rounded).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let rms = (square / last.len() as f64).sqrt();
        let (lse, rounded_lse) = (log_sum_exp(last), log_sum_exp(&rounded));
        let kl: f64 = last
            .iter()
            .zip(&rounded)
            .map(|(&a, &b)| {
                let (a, b) = (f64::from(a) - lse, f64::from(b) - rounded_lse);
                a.exp() * (a - b)
            })
            .sum();
        assert!(rms < rms_allowed && kl < kl_allowed, "{what}: rounded activations: rms {rms}, KL {kl}");
        assert!(rms > 0.0, "{what}: the default mode is not meant to be exact");
    }
}

#[test]
fn smollm2_logits() {
    check_logits("smollm2", "smollm2/logits_f32.json", 1e-3, 0.5, 0.02);
}

/// Held to the f64 pass: llama.cpp's own f32 runs go through a half-precision table of GELU.
#[test]
fn gemma3_logits() {
    check_logits("gemma3-270m", "gemma3/logits_exact.json", 1e-3, 0.6, 0.05);
}

/// Greedy tokens are equal as long as the runner-up is further away than rounding can carry it.
fn check_greedy(name: &str, folder: &str, exact: bool, margin: f64, at_least: usize) {
    let mut model = open(name, exact);
    let mut compared = 0;
    for case in fixture(&format!("{folder}/greedy_f32.json")).as_array().expect("cases") {
        let (prompt, wanted) = (ids(&case["prompt_ids"]), ids(&case["ids"]));
        let options = GenerateOptions { max_tokens: wanted.len(), ignore_eos: true, ..GenerateOptions::default() };
        let mut session = model.session(prompt.len() + wanted.len()).expect("a session");
        let got = model.generate(&mut session, &prompt, &options, &mut |_| ControlFlow::Continue(()));
        let got = got.expect("a continuation").ids;
        let margins = case["margins"].as_array().expect("margins");
        let sure = margins.iter().take_while(|m| float(m) > margin).count();
        assert_eq!(got[..sure], wanted[..sure], "{name} {}", case["name"]);
        compared += sure;
    }
    assert!(compared >= at_least, "{name}: only {compared} tokens were compared");
}

#[test]
fn greedy_continuations() {
    check_greedy("smollm2", "smollm2", true, 0.01, 200);
    check_greedy("smollm2", "smollm2", false, 1.0, 10);
    check_greedy("gemma3-270m", "gemma3", true, 0.05, 100);
    check_greedy("gemma3-270m", "gemma3", false, 1.0, 10);
}

fn check_embeddings(name: &str, folder: &str, exact: bool, least: f64) {
    let mut model = open(name, exact);
    for case in fixture(&format!("{folder}/embed_f32.json")).as_array().expect("cases") {
        let text = case["text"].as_str().expect("text");
        let tokens = model.text().encode(text, true).expect("ids");
        assert_eq!(tokens, ids(&case["ids"]), "{name} {}", case["name"]);
        let ours = model.embed(&tokens).expect("an embedding");
        let wanted = case["vector"].as_array().expect("a vector");
        let cosine: f64 = ours.iter().zip(wanted).map(|(&a, b)| f64::from(a) * float(b)).sum();
        assert!(cosine > least, "{name} {}: cosine {cosine}", case["name"]);
    }
}

#[test]
fn embeddings() {
    check_embeddings("smollm2", "smollm2", true, 0.99999);
    check_embeddings("smollm2", "smollm2", false, 0.995);
    check_embeddings("gemma3-270m", "gemma3", true, 0.99999);
    check_embeddings("gemma3-270m", "gemma3", false, 0.995);
}

/// What the command `perplexity` computes, over the first windows only: the whole text takes a minute.
#[test]
fn perplexity_of_the_first_windows() {
    for (name, folder, exact, allowed) in [("smollm2", "smollm2", true, 1e-3), ("smollm2", "smollm2", false, 1.5e-2)] {
        let mut model = open(name, exact);
        let wanted = &fixture(&format!("{folder}/perplexity.json"))["f32"]["running_by_window"];
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gguf/perplexity.txt");
        let text = fs::read(path).expect("the text");
        let tokenizer = model.text().tokenizer().expect("a tokenizer").clone();
        let options = EncodeOptions { add_special: true, parse_special: false };
        let tokens = tokenizer.encode(&text, options).expect("ids");
        let (mut sum, mut count) = (0.0, 0.0);
        for (i, window) in tokens.chunks_exact(512).take(2).enumerate() {
            let outputs: Vec<usize> = (256..511).collect();
            for (row, &position) in logits(&mut model, window, &outputs).iter().zip(&outputs) {
                sum += log_sum_exp(row) - f64::from(row[window[position + 1] as usize]);
                count += 1.0;
            }
            let (got, wanted) = (f64::exp(sum / count), float(&wanted[i]));
            assert!((got / wanted - 1.0).abs() < allowed, "{name}, exact {exact}, window {i}: {got}, not {wanted}");
        }
    }
}
