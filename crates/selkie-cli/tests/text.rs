//! `selkie tokenize`, `selkie detokenize`, `selkie template`: held to the fixtures, byte by byte.

mod common;

use std::fs;

use common::{Folder, bytes, chat_model, failure, fixture, fixture_json, json, smollm2_text, text, text_with, typed};
use serde_json::{Value, json};

fn list(ids: &Value) -> Vec<u32> {
    serde_json::from_value(ids.clone()).expect("ids")
}

#[test]
fn ids_are_those_of_the_fixtures() {
    let folder = Folder::new();
    for file in ["llama-gqa/model.safetensors", "llama-gqa/config.json", "tokenizer/tokenizer.json"] {
        folder.copy(&format!("hf/{file}"), file.rsplit('/').next().expect("a name"));
    }
    folder.copy("hf/tokenizer/tokenizer_config.json", "tokenizer_config.json");
    for model in [folder.path(""), fixture("hf/llama-gqa/model.gguf")] {
        for case in fixture_json("hf/tokenizer/expected.json").as_array().expect("a list") {
            let said = case["text"].as_str().expect("text");
            // The text goes through a pipe: an argument could hold no zero byte.
            let made = text_with(&["tokenize", &model, "--parse-special"], said.as_bytes());
            let ids = list(&case["ids"]);
            assert_eq!(made.trim_end(), typed(&ids), "{model} {said:?}");
            assert_eq!(text(&["detokenize", &model, &typed(&ids)]), said);
        }
    }
}

#[test]
fn switches_are_off_by_default_and_pieces_are_told() {
    let folder = Folder::new();
    let model = smollm2_text(&folder);
    // The tokenizer's own tests run them all.
    for case in fixture_json("gguf/smollm2/tokenize.json").as_array().expect("a list").iter().step_by(7) {
        let Some(said) = case["text"].as_str() else { continue };
        for (special, parse) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let switches = [(special, "--add-special"), (parse, "--parse-special")];
            let switches: Vec<&str> = switches.iter().filter(|(on, _)| *on == 1).map(|(_, flag)| *flag).collect();
            let args = [&["tokenize", &model, "--json"][..], &switches].concat();
            let made: Value = serde_json::from_str(&text_with(&args, said.as_bytes())).expect("JSON");
            assert_eq!(made["ids"], case[format!("ids_special{special}_parse{parse}")], "{said:?}");
            let pieces = made["pieces"].as_array().expect("pieces");
            assert_eq!(pieces.len(), list(&made["ids"]).len());
        }
    }
    let made = json(&["tokenize", &model, "Hello world<|im_end|>", "--parse-special", "--json"]);
    assert_eq!(made["pieces"], json!(["Hello", " world", "<|im_end|>"]));
}

#[test]
fn bytes_come_back_that_are_no_text() {
    let folder = Folder::new();
    let model = smollm2_text(&folder);
    let cases = fixture_json("gguf/smollm2/tokenize.json");
    for case in cases.as_array().expect("a list").iter().step_by(5) {
        let ids = typed(&list(&case["ids_special0_parse1"]));
        let hex: String = bytes(&["detokenize", &model, &ids]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, case["detok_hex"], "{}", case["name"]);
    }
    assert_eq!(json(&["detokenize", &model, "19556", "--json"]), json!({"text": "Hello"}));
    let line = failure(&["detokenize", &model, "49152"]);
    assert!(line.contains("49152"), "{line}");
}

#[test]
fn templates_render_as_the_fixtures_say() {
    let folder = Folder::new();
    let model = smollm2_text(&folder);
    for case in fixture_json("gguf/smollm2/chat.json")["cases"].as_array().expect("cases") {
        let messages = folder.write("messages.json", case["messages"].to_string());
        let args = ["template", &model, "--messages", &messages, "--no-generation-prompt"];
        let args = if case["add_generation_prompt"] == true { &args[..4] } else { &args };
        assert_eq!(text(args), case["prompt"].as_str().expect("a prompt"), "{}", case["name"]);
        let made = json(&[args, &["--json"]].concat());
        assert_eq!((&made["prompt"], &made["ids"]), (&case["prompt"], &case["ids"]), "{}", case["name"]);
    }
}

#[test]
fn tools_reach_the_template() {
    let folder = Folder::new();
    let model = chat_model(&folder, "{{ tools[0].function.name if tools else 'none' }} {{ messages | length }}");
    let messages = folder.write("messages.json", r#"[{"role": "user", "content": "x"}]"#);
    let tools = folder.write("tools.json", r#"[{"type": "function", "function": {"name": "swim"}}]"#);
    let args = ["template", &model, "--messages", &messages];
    assert_eq!(text(&args), "none 1");
    assert_eq!(text(&[&args[..], &["--tools", &tools]].concat()), "swim 1");
}

#[test]
fn what_cannot_be_rendered_is_told() {
    let folder = Folder::new();
    let model = chat_model(&folder, "{{ raise_exception('roles have to alternate') }}");
    let good = folder.write("good.json", r#"[{"role": "user", "content": "x"}]"#);
    let line = failure(&["template", &model, "--messages", &good]);
    assert!(line.contains("roles have to alternate"), "{line}");
    for (name, content) in [("bad.json", "[{"), ("text.json", "hello"), ("empty.json", "")] {
        let bad = folder.write(name, content);
        let line = failure(&["template", &model, "--messages", &bad]);
        assert!(line.starts_with(&format!("{bad}: ")), "{line}");
    }
    let line = failure(&["template", &model, "--messages", &folder.path("nowhere.json")]);
    assert!(line.contains("nowhere.json: "), "{line}");
    let line = failure(&["template", &fixture("hf/llama-gqa/model.gguf"), "--messages", &good]);
    assert!(line.contains("has no chat template"), "{line}");
    let object = folder.write("object.json", r#"{"role": "user", "content": "x"}"#);
    let line = failure(&["template", &model, "--messages", &object]);
    assert!(line.contains("a list of messages"), "{line}");
    assert!(fs::exists(&good).expect("a folder"));
}
