//! `selkie chat` without a person: one answer.

mod common;

use std::{
    io::Write,
    process::{Output, Stdio},
};

use common::{Folder, TEMPLATE, chat_model, command, failure, failure_with, fixture, run_with, text, text_with};

/// A conversation's flags, the same answer each time.
fn args<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["chat", "-m", model, "-n", "8", "--temperature", "0"], more].concat()
}

/// What `generate` makes of the prompt that the template would render, with a conversation's default penalty.
fn rendered(model: &str, prompt: &str) -> String {
    let plain = fixture("hf/llama-gqa/model.gguf");
    let ids = text(&["tokenize", model, prompt, "--parse-special"]);
    text(&["generate", &plain, "--ids", ids.trim(), "-n", "8", "--temperature", "0", "--repetition-penalty", "1.1"])
}

fn answer(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

#[test]
fn a_prompt_gets_one_answer() {
    let folder = Folder::new();
    let model = chat_model(&folder, TEMPLATE);
    let output = run_with(&args(&model, &["the other"]), b"");
    assert_eq!(answer(&output).trim_end(), rendered(&model, "user: the other\nassistant: ").trim_end());
    let notes = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(notes.contains(" prompt tokens at ") && notes.contains("first after "), "{notes}");
    assert!(!notes.contains('\x1b'), "there are no colours where nobody watches: {notes:?}");
    let system = text(&args(&model, &["the other", "--system", "Be brief."]));
    let prompt = "system: Be brief.\nuser: the other\nassistant: ";
    assert_eq!(system.trim_end(), rendered(&model, prompt).trim_end());
}

#[test]
fn an_answer_may_be_json() {
    let folder = Folder::new();
    let model = chat_model(&folder, TEMPLATE);
    let answer = text(&args(&model, &["the other", "--json"]));
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let plain = text(&args(&model, &["the other"]));
    assert_eq!(answer["text"].as_str().expect("text").trim_end(), plain.trim_end());
    assert!(answer["ids"].is_array() && answer["prompt_tokens"].is_u64() && answer["timings"].is_object(), "{answer}");
}

#[test]
fn what_is_piped_in_is_asked() {
    let folder = Folder::new();
    let model = chat_model(&folder, TEMPLATE);
    let piped = text_with(&args(&model, &[]), b"the other\n");
    assert_eq!(piped, text(&args(&model, &["the other"])));
    assert_eq!(piped, text_with(&args(&model, &["-"]), b"the other\n"));
    let both = text_with(&args(&model, &["one", "-"]), b"the\nother\n");
    assert_eq!(both, text(&args(&model, &["one\n\nthe\nother"])));
    assert_eq!(failure_with(&args(&model, &[]), b"\n"), "the prompt is empty");
    assert_eq!(failure(&args(&model, &[" "])), "the prompt is empty");
    assert!(failure_with(&args(&model, &[]), b"\xff").starts_with("standard input: "));
}

#[test]
fn a_prompt_does_not_wait_for_a_pipe_that_stays_open() {
    let folder = Folder::new();
    let model = chat_model(&folder, TEMPLATE);
    let mut child = command(&args(&model, &["the other"]));
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("selkie starts");
    let mut open = child.stdin.take().expect("a pipe");
    // It may have ended by now.
    let _ = open.write_all(b"not asked");
    let output = child.wait_with_output().expect("selkie ends");
    assert_eq!(answer(&output), text(&args(&model, &["the other"])));
    drop(open);
}

#[test]
fn what_cannot_be_answered_is_one_line() {
    let folder = Folder::new();
    let line = failure(&["chat", "hello", "-m", &fixture("hf/llama-gqa/model.gguf")]);
    assert!(line.contains("has no chat template"), "{line}");
    let model = chat_model(&folder, TEMPLATE);
    let line = failure(&args(&model, &["the other one and another one", "--context", "10"]));
    assert!(line.contains("but the context holds 10; /reset starts over, --context N makes room"), "{line}");
    let model = chat_model(&folder, "{{ raise_exception('only fish may speak') }}");
    assert!(failure(&args(&model, &["hello"])).contains("only fish may speak"));
    let model = chat_model(&folder, "{% if %}");
    assert!(failure(&args(&model, &["hello"])).contains("template"));
}

#[test]
fn an_answer_ends_with_the_context() {
    let folder = Folder::new();
    let model = chat_model(&folder, TEMPLATE);
    let output = run_with(&["chat", "hello", "-m", &model, "--context", "40", "--logit-bias", "1=-1000"], b"");
    answer(&output);
    let notes = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(notes.contains("the context of 40 tokens is full; /reset starts over"), "{notes}");
}
