//! What goes wrong is one line that names it, and an exit code.

mod common;

use std::fs;

use common::{Folder, command, failure, fixture, wrong_usage};
use selkie::ModelFiles;

const MODEL: &str = "hf/llama-gqa/model.gguf";

/// Commands that read a model in different depths.
fn readers(folder: &Folder) -> Vec<Vec<String>> {
    let out = folder.path("out.safetensors");
    let words = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect();
    vec![
        words(&["inspect"]),
        words(&["plan"]),
        words(&["tokenize", "the"]),
        words(&["generate", "the", "-n", "1"]),
        words(&["logits", "--ids", "1,2", "--out", &out]),
    ]
}

/// Runs each reader on `model`; all have to fail, with the file's name in the line.
fn all_fail(folder: &Folder, model: &str) -> Vec<String> {
    let lines = readers(folder).into_iter().map(|mut args| {
        args.insert(1, model.to_owned());
        let line = failure(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(line.starts_with(model), "{args:?}: {line}");
        line
    });
    lines.collect()
}

#[test]
fn files_that_are_not_there() {
    let folder = Folder::new();
    for line in all_fail(&folder, &folder.path("nowhere.gguf")) {
        assert!(line.ends_with("no such file or folder"), "{line}");
    }
}

#[test]
fn folders_without_a_model() {
    let folder = Folder::new();
    let empty = folder.path("");
    for line in all_fail(&folder, &empty) {
        assert!(line.contains("holds no model.safetensors"), "{line}");
    }
    folder.copy("hf/llama-gqa/model.safetensors", "model.safetensors");
    let line = failure(&["generate", &empty, "--ids", "1"]);
    assert!(line.contains("config"), "{line}");
}

#[test]
fn empty_and_random_files() {
    let folder = Folder::new();
    let mut state = 0x5eed_u64;
    let noise: Vec<u8> = (0..5000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect();
    for name in ["x.gguf", "x.safetensors", "x.bin"] {
        all_fail(&folder, &folder.write(name, ""));
        all_fail(&folder, &folder.write(name, &noise));
        all_fail(&folder, &folder.write(name, "a plain text file that is no model"));
        for version in 2..4u32 {
            let start = [b"GGUF".as_slice(), &version.to_le_bytes()].concat();
            all_fail(&folder, &folder.write(name, [&start, noise.as_slice()].concat()));
        }
        let length = (noise.len() as u64 - 8).to_le_bytes();
        all_fail(&folder, &folder.write(name, [&length, &noise[8..]].concat()));
    }
}

#[test]
fn files_that_end_too_early() {
    let folder = Folder::new();
    let whole = fs::read(fixture("hf/llama-gqa/model-q4_0.gguf")).expect("a fixture");
    let lengths = [0, 1, 3, 4, 7, 8, 15, 16, 23, 24, 25, 31, 40, 63, 64, 100, 1000];
    let further = (1..40).map(|i| i * whole.len() / 40);
    for length in lengths.into_iter().chain(further).chain([whole.len() - 1]) {
        let cut = folder.write("cut.gguf", &whole[..length]);
        let line = failure(&["generate", &cut, "--ids", "1"]);
        assert!(line.starts_with(&cut), "{length}: {line}");
    }
    let whole = fs::read(fixture("hf/llama-f16/model.safetensors")).expect("a fixture");
    folder.copy("hf/llama-f16/config.json", "config.json");
    for length in (0..32).map(|i| i * whole.len() / 32) {
        let cut = folder.write("cut.safetensors", &whole[..length]);
        let line = failure(&["generate", &cut, "--ids", "1"]);
        assert!(line.starts_with(&cut), "{length}: {line}");
    }
}

#[test]
fn configurations_of_other_models() {
    let model = fixture("hf/llama-gqa");
    let other = fixture("hf/llama-f16/config.json");
    let line = failure(&["logits", &model, "--config", &other, "--ids", "1", "--out", "/dev/null"]);
    assert!(line.contains("tensor `model.") && line.contains("shape [") && line.contains("] where ["), "{line}");
    let folder = Folder::new();
    for (name, content) in [("a.json", "{"), ("b.json", "[]"), ("c.json", r#"{"model_type": "squid"}"#), ("d.json", "")]
    {
        let config = folder.write(name, content);
        failure(&["generate", &model, "--config", &config, "--ids", "1"]);
    }
    let line = failure(&["generate", &model, "--config", &folder.path("no.json"), "--ids", "1"]);
    assert!(line.contains("no.json: "), "{line}");
}

#[test]
fn names_that_nobody_has() {
    let line = failure(&["generate", "smolm2", "x"]);
    assert!(line.starts_with("no model is called `smolm2`; did you mean smollm2"), "{line}");
    failure(&["chat", "x", "-m", ""]);
    failure(&["pull", "hf:nobody"]);
}

#[test]
fn inputs_of_logits() {
    let folder = Folder::new();
    let model = fixture(MODEL);
    let out = folder.path("out.safetensors");
    for (name, content) in [("a.json", "[1, 2]"), ("b.json", "[[1], [-1]]"), ("c.json", "hello"), ("d.json", "[[1.5]]")]
    {
        let file = folder.write(name, content);
        let line = failure(&["logits", &model, "--batch", &file, "--out", &out]);
        assert!(line.starts_with(&file), "{line}");
    }
    for content in ["[]", "[[1], []]"] {
        let file = folder.write("e.json", content);
        assert_eq!(failure(&["logits", &model, "--batch", &file, "--out", &out]), "the prompt is empty");
    }
    assert_eq!(failure(&["logits", &model, "--prompt", "", "--out", &out]), "the prompt is empty");
    let line = failure(&["logits", &model, "--ids", "4294967295", "--out", &out]);
    assert!(line.contains("token id 4294967295 is outside the vocabulary of 272"), "{line}");
    failure(&["logits", &model, "--ids", "1", "--out", &folder.path("no/out.safetensors")]);
    failure(&["embed", &model, "--ids", "300"]);
    let text = folder.write("short.txt", "the");
    assert!(failure(&["perplexity", &model, &text]).contains("do not fill a window of 512"));
    assert!(failure(&["perplexity", &model, &folder.path("no.txt")]).contains("no.txt: "));
    assert!(!fs::exists(out).expect("a folder"), "nothing is written where something failed");
}

#[test]
fn flags_that_make_no_sense() {
    let model = fixture(MODEL);
    for args in [
        &[][..],
        &["sing"],
        &["generate"],
        &["generate", &model, "x", "--wings"],
        &["generate", &model, "x", "--ids", "1"],
        &["generate", &model, "--ids", "one"],
        &["generate", &model, "--ids", "1,,2"],
        &["generate", &model, "--ids", "-1"],
        &["generate", &model, "x", "-n", "-1"],
        &["generate", &model, "x", "--temperature", "-1"],
        &["generate", &model, "x", "--temperature", "warm"],
        &["generate", &model, "x", "--top-p", "2"],
        &["generate", &model, "x", "--min-p", "-0.1"],
        &["generate", &model, "x", "--logit-bias", "5"],
        &["generate", &model, "x", "--logit-bias", "5=nan"],
        &["generate", &model, "x", "--seed", "-1"],
        &["generate", &model, "x", "--threads", "0"],
        &["generate", &model, "x", "--backend", "quantum"],
        &["generate", &model, "x", "--exact", "--fast"],
        &["generate", &model, "x", "--device", "H200"],
        &["chat", "x", "--context", "0"],
        &["chat", "x", "y"],
        &["logits", &model, "--out", "x"],
        &["logits", &model, "--ids", "1", "--prompt", "x", "--out", "x"],
        &["logits", &model, "--ids", "1", "--chunk", "0", "--out", "x"],
        &["logits", &model, "--ids", "1"],
        &["embed", &model, "x", "--ids", "1"],
        &["detokenize", &model],
        &["template", &model],
        &["perplexity", &model, "x", "--context", "1"],
        &["bench", &model, "-p", "0", "-n", "0"],
        &["bench", &model, "-r", "0"],
        &["convert", &model, "x.gguf", "--type", "q9_9"],
        &["pull"],
    ] {
        assert!(!wrong_usage(args).is_empty(), "{args:?}");
    }
}

#[test]
fn nobody_has_to_read_to_the_end() {
    for args in [&["list"][..], &["inspect", &fixture(MODEL)], &["plan", &fixture(MODEL)], &["devices"]] {
        let mut command = command(args);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.stdout(writer).output().expect("selkie runs");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}

#[test]
fn weights_that_are_no_numbers_are_named_once() {
    let folder = Folder::new();
    // The first value of a norm; the scale of the last block of a quantised matrix; a value amid floats.
    for (from, tensor, at, bytes) in [
        ("hf/llama-gqa/model.gguf", "blk.1.attn_norm.weight", 0, &f32::NAN.to_le_bytes()[..]),
        ("hf/llama-gqa/model-q8_0.gguf", "blk.0.ffn_down.weight", -34, &0x7e00u16.to_le_bytes()),
        ("hf/llama-gqa/model.gguf", "token_embd.weight", 4000, &f32::INFINITY.to_le_bytes()),
        ("hf/mamba/model.gguf", "blk.0.ssm_a", 8, &f32::NAN.to_le_bytes()),
    ] {
        let files = ModelFiles::find(fixture(from).as_ref(), None).and_then(ModelFiles::open).expect(from);
        let range = files.checkpoint.get(tensor).expect(tensor).range.clone();
        let mut file = fs::read(fixture(from)).expect(from);
        let at = if at < 0 { range.end as i64 + at } else { range.start as i64 + at } as usize;
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let model = folder.write("strange.gguf", file);
        let run = command(&["generate", &model, "--ids", "1,2", "-n", "1"]).output().expect("selkie runs");
        let notes = String::from_utf8(run.stderr).expect("UTF-8");
        let line = format!("{model}: tensor `{tensor}` holds values that are no numbers");
        assert_eq!(notes.matches(&line).count(), 1, "{notes}");
        assert_eq!(notes.matches("no numbers").count(), 1, "{notes}");
    }
    let run = command(&["generate", &fixture(MODEL), "--ids", "1,2", "-n", "1"]).output().expect("selkie runs");
    assert!(!String::from_utf8_lossy(&run.stderr).contains("no numbers"));
}
