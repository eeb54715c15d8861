//! `selkie generate --save-state` and `--load-state`.

mod common;

use std::fs;

use common::{Folder, Tensors, command, failure, fixture, json, text, typed};
use serde_json::Value;

const LLAMA: &str = "hf/llama-gqa/model.gguf";
const MAMBA: &str = "hf/mamba/model.gguf";

const PROMPT: &[u32] = &[5, 9, 17, 40, 3];

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value["ids"].clone()).expect("ids")
}

/// The new tokens of a run, greedy unless `more` says otherwise.
fn made(model: &str, n: usize, more: &[&str]) -> Vec<u32> {
    let n = n.to_string();
    let flags = ["generate", model, "-n", &n, "--temperature", "0", "--ignore-eos", "--json"];
    ids(&json(&[&flags, more].concat()))
}

/// The size of the state after `n` tokens.
fn size(model: &str, n: usize, folder: &Folder) -> u64 {
    let file = folder.path("size.state");
    made(model, n, &["--ids", &typed(PROMPT), "--save-state", &file]);
    fs::metadata(file).expect("a file").len()
}

#[test]
fn ten_and_ten_are_twenty() {
    let folder = Folder::new();
    let prompt = typed(PROMPT);
    for model in [LLAMA, "hf/llama-gqa", MAMBA, "hf/jamba/model.gguf", "hf/gemma2/model.gguf"] {
        let (model, state) = (fixture(model), folder.path("x.state"));
        for backends in [["cpu", "cpu"], ["reference", "reference"], ["cpu", "reference"], ["reference", "cpu"]] {
            let run =
                |n, backend: &str, more: &[&str]| made(&model, n, &[&["--backend", backend, "--exact"], more].concat());
            let whole = run(20, backends[0], &["--ids", &prompt]);
            let first = run(10, backends[0], &["--ids", &prompt, "--save-state", &state]);
            let second = run(10, backends[1], &["--load-state", &state]);
            assert_eq!([first, second].concat(), whole, "{model} on {backends:?}");
        }
    }
}

#[test]
fn new_tokens_follow_those_of_the_state() {
    let folder = Folder::new();
    for model in [LLAMA, MAMBA] {
        let (model, state) = (fixture(model), folder.path("x.state"));
        let first = made(&model, 6, &["--ids", &typed(PROMPT), "--save-state", &state]);
        let whole = made(&model, 7, &["--ids", &typed(&[PROMPT, &first, &[8, 9]].concat())]);
        let run = ["generate", &model, "-n", "7", "--temperature", "0", "--ignore-eos", "--json"];
        let second = json(&[&run[..], &["--load-state", &state, "--ids", "8,9"]].concat());
        assert_eq!(ids(&second), whole, "{model}");
        // The pending one and the two new ones; nothing of what the state holds is computed again.
        assert_eq!(second["prompt_tokens"], 3, "{model}");
    }
}

#[test]
fn texts_follow_as_they_are() {
    let folder = Folder::new();
    let (model, state) = (common::chat_model(&folder, common::TEMPLATE), folder.path("x.state"));
    let first = made(&model, 3, &["the other", "--raw", "--save-state", &state]);
    let more: Vec<u32> =
        text(&["tokenize", &model, " sea"]).trim().split(',').map(|id| id.parse().expect("id")).collect();
    let begun: Vec<u32> = text(&["tokenize", &model, "the other", "--add-special"])
        .trim()
        .split(',')
        .map(|id| id.parse().expect("id"))
        .collect();
    let whole = made(&model, 5, &["--ids", &typed(&[begun, first, more].concat())]);
    assert_eq!(made(&model, 5, &[" sea", "--load-state", &state]), whole);
}

#[test]
fn a_seed_goes_on_too_and_a_prompt_can_be_read_ahead() {
    let folder = Folder::new();
    let state = folder.path("x.state");
    for model in [LLAMA, MAMBA] {
        let model = fixture(model);
        let flags = ["--temperature", "1.5", "--top-k", "0", "--seed", "11", "--ignore-eos", "--json"];
        let run = |n: &str, more: &[&str]| ids(&json(&[&["generate", &model, "-n", n], &flags[..], more].concat()));
        let whole = run("20", &["--ids", &typed(PROMPT)]);
        assert!(run("0", &["--ids", &typed(PROMPT), "--save-state", &state]).is_empty());
        assert_eq!(run("20", &["--load-state", &state]), whole, "{model}");
        // Over the file that it goes on from.
        let first = run("12", &["--load-state", &state, "--save-state", &state]);
        assert_eq!([first, run("8", &["--load-state", &state])].concat(), whole, "{model}");
    }
}

#[test]
fn a_recurrent_state_has_the_same_size_whatever_was_said() {
    let folder = Folder::new();
    for model in ["hf/mamba", "hf/mamba2-g2"] {
        let model = fixture(model);
        assert_eq!(size(&model, 0, &folder), size(&model, 120, &folder), "{model}");
    }
    let llama = fixture(LLAMA);
    assert!(size(&llama, 0, &folder) < size(&llama, 20, &folder));
}

#[test]
fn a_state_belongs_to_a_model_and_not_to_a_path() {
    let folder = Folder::new();
    let (model, state) = (fixture(LLAMA), folder.path("x.state"));
    made(&model, 4, &["--ids", &typed(PROMPT), "--save-state", &state]);
    let copy = folder.copy(LLAMA, "elsewhere.gguf");
    made(&copy, 4, &["--load-state", &state]);
    let id = |model: &str| json(&["inspect", model, "--json"])["id"].as_str().expect("an id").to_owned();
    assert_eq!(id(&copy), id(&model));
    for other in ["hf/llama-gqa/model-q8_0.gguf", "hf/llama-gqa", MAMBA] {
        let other = fixture(other);
        let (ours, theirs) = (id(&model), id(&other));
        let line = failure(&["generate", &other, "--load-state", &state]);
        let wanted =
            format!("{state}: was saved by model {ours}, but {other} is {theirs}: its state is of no use here");
        assert_eq!(line, wanted);
        assert_ne!(ours, theirs);
        assert!(text(&["inspect", &other, "--no-tensors"]).contains(&format!("\nid {theirs}\n")));
    }
}

#[test]
fn what_is_no_state_is_said() {
    let folder = Folder::new();
    let (model, state) = (fixture(LLAMA), folder.path("x.state"));
    made(&model, 4, &["--ids", &typed(PROMPT), "--save-state", &state]);
    let whole = fs::read(&state).expect("a state");
    let swap = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).unwrap_or_else(|| panic!("no {from}"));
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let ones = "1".repeat(20);
    for (name, bytes, why) in [
        ("cut.state", whole[..whole.len() - 1].to_vec(), "is no saved state: "),
        ("stub.state", whole[..100].to_vec(), "is no saved state: "),
        ("empty.state", vec![], "is no saved state: "),
        ("text.state", b"a text, and no state".to_vec(), "is no saved state: "),
        (
            "other.state",
            fs::read(fixture("hf/llama-gqa/model.safetensors")).expect("weights"),
            "its metadata has no `format`",
        ),
        (
            "newer.state",
            swap(r#""version":"1""#, r#""version":"7""#),
            "is of version 7, but only versions up to 1 are known here",
        ),
        ("odd.state", swap(r#""version":"1""#, r#""version":"x""#), "`version` is `x`"),
        ("count.state", swap("00000000000000000008", "00000000000000000009"), "k of slot 0 is [8, "),
        ("far.state", swap("00000000000000000008", &ones), "`positions` is `11111111111111111111`"),
        ("name.state", swap("slot.0.k", "slot.9.k"), "has `slot.9.k`, which the model's state has not"),
        ("kind.state", swap("selkie state", "selkie skate"), "its metadata has no `format` of `selkie state`"),
    ] {
        let file = folder.write(name, bytes);
        let line = failure(&["generate", &model, "--load-state", &file]);
        assert!(line.starts_with(&file) && line.contains(why), "{line}");
    }
    let line = failure(&["generate", &model, "--load-state", &folder.path("nowhere.state")]);
    assert!(line.contains("nowhere.state: No such file"), "{line}");
    let line = failure(&["generate", &model, "--load-state", &folder.path("")]);
    assert!(line.contains("is not a file"), "{line}");
    let line = failure(&["generate", &model, "--ids", "1", "--load-state", &state, "--save-state", &model]);
    assert!(line.contains("would be written over itself"), "{line}");
}

#[test]
fn a_state_is_a_documented_safetensors_file() {
    let folder = Folder::new();
    let state = folder.path("x.safetensors");
    let first = made(&fixture(MAMBA), 4, &["--ids", &typed(PROMPT), "--save-state", &state]);
    let file = Tensors::open(&state);
    assert_eq!(file.ids("pending"), first[3..]);
    assert_eq!(file.names().iter().filter(|name| !name.starts_with("slot.")).count(), 1, "{:?}", file.names());
    // With nothing to go on from, standard input is not waited for: here it is empty.
    let run = command(&["generate", &fixture(MAMBA), "--load-state", &state, "-n", "1"]).output().expect("selkie runs");
    assert!(run.status.success());
}
