//! `selkie generate`.

mod common;

use common::{Folder, Tensors, chat_model, failure, failure_with, fixture, json, text, text_with, typed};
use serde_json::Value;

const MODEL: &str = "hf/llama-gqa/model.gguf";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value["ids"].clone()).expect("ids")
}

#[test]
fn greedy_tokens_are_those_of_the_fixtures() {
    let legacy = fixture("hf/llama-gqa/config.legacy.json");
    for (model, more) in [
        ("hf/llama-gqa/model.gguf", &[][..]),
        ("hf/llama-gqa", &[]),
        ("hf/llama-gqa/model.safetensors", &["--config", &legacy]),
        ("hf/llama-gqa/model.gguf", &["--backend", "reference"]),
        ("hf/llama-bf16", &[]),
        ("hf/gemma2/model.gguf", &["--threads", "1"]),
        ("hf/mixtral", &[]),
    ] {
        let folder = model.trim_end_matches("/model.gguf").trim_end_matches("/model.safetensors");
        let expected = Tensors::open(fixture(&format!("{folder}/expected.safetensors")));
        let (model, prompt) = (fixture(model), expected.typed("greedy.prompt"));
        let flags = ["-n", "16", "--temperature", "0", "--exact", "--ignore-eos", "--json"];
        let args = [&["generate", &model, "--ids", &prompt][..], &flags, more].concat();
        let made = json(&args);
        assert_eq!(ids(&made), expected.ids("greedy.tokens"), "{args:?}");
        assert_eq!(made["prompt_tokens"], 8);
    }
}

#[test]
fn json_has_the_fields_that_are_promised() {
    let made = json(&["generate", &fixture(MODEL), "the other", "-n", "5", "--ignore-eos", "--json"]);
    assert_eq!(keys(&made), ["ids", "text", "prompt_tokens", "finish", "timings"]);
    assert_eq!((ids(&made).len(), &made["finish"]), (5, &"length".into()));
    assert!(made["text"].is_string());
    let timings = ["prompt_ms", "prompt_tokens_per_second", "decode_ms", "decode_tokens_per_second"];
    assert_eq!(keys(&made["timings"]), timings);
}

#[test]
fn without_a_tokenizer_ids_are_the_result() {
    let made = text(&["generate", &fixture("hf/llama-gqa"), "--ids", "5,6,7", "-n", "3", "--temperature", "0"]);
    let ids: Vec<&str> = made.trim_end().split(',').collect();
    assert_eq!(ids.len(), 3, "{made}");
    assert!(ids.iter().all(|id| id.parse::<u32>().is_ok()), "{made}");
    let line = failure(&["generate", &fixture("hf/llama-gqa"), "some text"]);
    assert!(line.ends_with("has no tokenizer: only commands that take token ids can use it"), "{line}");
}

#[test]
fn a_seed_repeats_a_text() {
    let model = fixture(MODEL);
    let made = |seed: &str| {
        text(&["generate", &model, "the", "-n", "24", "--temperature", "1.5", "--top-k", "0", "--seed", seed])
    };
    assert_eq!(made("7"), made("7"));
    assert_ne!(made("7"), made("8"));
}

#[test]
fn a_stop_string_is_found_across_tokens_and_left_out() {
    let model = fixture(MODEL);
    let args = ["generate", &model, "the", "-n", "48", "--temperature", "0", "--ignore-eos", "--json"];
    let whole = json(&args)["text"].as_str().expect("text").to_owned();
    let pieces: Vec<char> = whole.chars().collect();
    // Three characters are more than one token here, and these stand nowhere before.
    let stop: String = pieces
        .windows(3)
        .map(|w| w.iter().collect::<String>())
        .filter(|s| !s.contains(char::REPLACEMENT_CHARACTER) && whole.find(s.as_str()) > Some(0))
        .nth(2)
        .expect("three characters");
    let stopped = json(&[&args[..], &["--stop", "never said", "--stop", &stop]].concat());
    assert_eq!(stopped["text"], whole[..whole.find(&stop).expect("there")]);
    assert_eq!(stopped["finish"], "stop");
}

#[test]
fn a_bias_decides() {
    let model = fixture(MODEL);
    let args = ["generate", &model, "the", "-n", "4", "--temperature", "0", "--json", "--logit-bias", "70=1000"];
    assert_eq!(ids(&json(&args)), [70; 4]);
    let end = json(&["generate", &model, "the", "--temperature", "0", "--json", "--logit-bias", "1=1000"]);
    assert_eq!((ids(&end), &end["text"], &end["finish"]), (vec![1], &"".into(), &"stop".into()));
}

#[test]
fn a_template_is_used_unless_the_text_is_raw() {
    let folder = Folder::new();
    let model = chat_model(&folder, common::TEMPLATE);
    let prompt_tokens = |more: &[&str]| {
        let args = [&["generate", &model, "the", "-n", "1", "--json"][..], more].concat();
        json(&args)["prompt_tokens"].as_u64().expect("a number")
    };
    let raw = text(&["tokenize", &model, "the", "--add-special"]).trim().split(',').count() as u64;
    let whole = "user: the\nassistant: ";
    let chat = text(&["tokenize", &model, whole, "--parse-special"]).trim().split(',').count() as u64;
    assert_eq!((prompt_tokens(&["--raw"]), prompt_tokens(&[])), (raw, chat));
}

#[test]
fn prompts_come_through_a_pipe() {
    let model = fixture(MODEL);
    let args = ["generate", &model, "-n", "4", "--temperature", "0"];
    let piped = text_with(&args, b"the other");
    assert_eq!(piped, text(&[&args[..2], &["the other"], &args[2..]].concat()));
    // A byte that is zero is a character like others.
    text_with(&args, b"a\0b\0");
    let line = failure_with(&args, b"caf\xe9");
    assert!(line.starts_with("standard input: incomplete utf-8"), "{line}");
}

#[test]
fn empty_prompts_and_foreign_ids_are_refused() {
    let model = fixture(MODEL);
    assert_eq!(failure(&["generate", &model, ""]), "the prompt is empty");
    assert_eq!(failure(&["generate", &model]), "the prompt is empty");
    assert_eq!(failure(&["generate", &model, "--ids", ""]), "the prompt is empty");
    let line = failure(&["generate", &model, "--ids", "5,272"]);
    assert!(line.contains("token id 272 is outside the vocabulary of 272"), "{line}");
    let line = failure(&["generate", &model, "the", "-n", "1", "--logit-bias", "272=1"]);
    assert!(line.contains("token id 272 is outside the vocabulary of 272"), "{line}");
}

#[test]
fn texts_end_with_the_context() {
    let model = fixture(MODEL);
    let args = |n: usize| ["generate".to_owned(), model.clone(), "--ids".into(), typed(&vec![9; n])];
    let run = |n: usize, more: &[&str]| {
        let args = args(n);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        json(&args)
    };
    let flags = ["-n", "50", "--ignore-eos", "--json"];
    // The last new token is never read, so it needs no place.
    assert_eq!((ids(&run(120, &flags)).len(), &run(120, &flags)["finish"]), (9, &"length".into()));
    assert_eq!(ids(&run(128, &flags)).len(), 1);
    assert_eq!(ids(&run(3, &["-n", "18446744073709551615", "--ignore-eos", "--json"])).len(), 126);
    let too_long = args(129);
    let too_long: Vec<&str> = too_long.iter().map(String::as_str).collect();
    assert_eq!(failure(&too_long), "the prompt has 129 tokens, but the context holds 128");
}
