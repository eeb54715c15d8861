//! Both reference models against what llama.cpp says about them, and a `tokenizer.json` against its own library.

mod common;

use common::{from_hex, json, tokenizer};
use selkie_text::{ChatTemplate, Detokenizer, EncodeOptions, Error, HuggingFaceFiles, RenderInput, Tokenizer};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn check_texts(model: &str) {
    let tokenizer = tokenizer(model);
    for case in json(&format!("gguf/{model}/tokenize.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let text = from_hex(case["hex"].as_str().unwrap());
        for (add_special, parse_special) in [(false, false), (false, true), (true, false), (true, true)] {
            let key = format!("ids_special{}_parse{}", u8::from(add_special), u8::from(parse_special));
            let found = tokenizer.encode(&text, EncodeOptions { add_special, parse_special }).unwrap();
            assert_eq!(found, ids(&case[&key]), "{model} {name} {key}");
        }
        for (ids_key, key, skip_special) in [
            ("ids_special0_parse1", "detok_hex", false),
            ("ids_special0_parse1", "detok_nospecial_hex", true),
            ("ids_special0_parse0", "detok_plain_hex", false),
        ] {
            let ids = ids(&case[ids_key]);
            let expected = from_hex(case[key].as_str().unwrap());
            assert_eq!(tokenizer.decode(&ids, skip_special).unwrap(), expected, "{model} {name} {key}");
            let mut stream = Detokenizer::new(&tokenizer, skip_special);
            let mut text = String::new();
            for &id in &ids {
                text.push_str(stream.push(id).unwrap());
            }
            text.push_str(stream.finish());
            assert_eq!(text, String::from_utf8_lossy(&expected), "{model} {name} {key} streamed");
        }
    }
}

fn check_pieces(model: &str) {
    let tokenizer = tokenizer(model);
    for entry in json(&format!("gguf/{model}/pieces.json")).as_array().unwrap() {
        let id = entry[0].as_u64().unwrap() as u32;
        let piece = from_hex(entry[1].as_str().unwrap());
        assert_eq!(*tokenizer.piece(id).unwrap(), *piece, "{model} {id}");
        let plain = if tokenizer.is_special(id) { Vec::new() } else { piece };
        assert_eq!(plain, from_hex(entry[2].as_str().unwrap()), "{model} {id} without special tokens");
    }
}

fn check_chats(model: &str) {
    let tokenizer = tokenizer(model);
    let file = json(&format!("gguf/{model}/chat.json"));
    let source = file["template"].as_str().unwrap();
    if file["template_is_in_file"] == true {
        assert_eq!(tokenizer.templates()[0].source, source);
    } else {
        assert!(tokenizer.chat_template(None).unwrap().is_none());
    }
    let (bos, eos) = (file["bos_token"].as_str().unwrap(), file["eos_token"].as_str().unwrap());
    assert_eq!(
        (tokenizer.token_text(tokenizer.bos()), tokenizer.token_text(tokenizer.eos())),
        (bos.into(), eos.into())
    );
    let template = ChatTemplate::new("default", source).unwrap();
    for case in file["cases"].as_array().unwrap() {
        let name = &case["name"];
        let add_generation_prompt = case["add_generation_prompt"].as_bool().unwrap();
        let input = RenderInput {
            add_generation_prompt,
            bos_token: bos,
            eos_token: eos,
            ..RenderInput::new(&case["messages"])
        };
        match template.render(&input) {
            Ok(prompt) => {
                assert_eq!(prompt, case["prompt"].as_str().unwrap(), "{model} {name}");
                let options = EncodeOptions { add_special: false, parse_special: true };
                assert_eq!(tokenizer.encode(prompt.as_bytes(), options).unwrap(), ids(&case["ids"]), "{model} {name}");
            }
            Err(error) => assert!(case["error"].is_string(), "{model} {name}: {error}"),
        }
    }
}

#[test]
fn smollm2() {
    check_texts("smollm2");
    check_pieces("smollm2");
    check_chats("smollm2");
}

#[test]
fn gemma3() {
    check_texts("gemma3");
    check_pieces("gemma3");
    check_chats("gemma3");
}

#[test]
fn end_tokens() {
    let smollm2 = tokenizer("smollm2");
    let texts = |tokenizer: &Tokenizer| -> Vec<String> {
        tokenizer.end_tokens().iter().map(|&id| tokenizer.token_text(Some(id))).collect()
    };
    assert_eq!(texts(&smollm2), ["<|endoftext|>", "<|im_end|>", "<reponame>"]);
    assert_eq!(texts(&tokenizer("gemma3")), ["<eos>", "<end_of_turn>", "</s>"]);
    assert_eq!((smollm2.adds_bos(), smollm2.adds_eos(), smollm2.vocab_size()), (false, false, 49_152));
    assert!(smollm2.warnings().is_empty());
    assert_eq!(smollm2.find_piece(b"<|im_end|>"), Some(2));
}

#[test]
fn ids_outside_the_vocabulary() {
    let smollm2 = tokenizer("smollm2");
    let error = smollm2.decode(&[1, 49_152], false).unwrap_err();
    assert_eq!(error, Error::UnknownId { id: 49_152, size: 49_152 });
    assert_eq!(error.to_string(), "token id 49152 is outside the vocabulary of 49152");
    assert!(smollm2.piece(u32::MAX).is_err());
    assert!(!smollm2.is_special(u32::MAX));
    let mut stream = Detokenizer::new(&smollm2, true);
    assert!(stream.push(u32::MAX).is_err());
    assert_eq!(stream.push(19_556).unwrap(), "Hello");
}

#[test]
fn tokenizer_json() {
    let file = |name: &str| std::fs::read(common::fixture(&format!("hf/tokenizer/{name}"))).unwrap();
    let (tokenizer, config) = (file("tokenizer.json"), file("tokenizer_config.json"));
    let files = HuggingFaceFiles { tokenizer: &tokenizer, config: Some(&config), chat_template: None };
    let tokenizer = Tokenizer::from_huggingface(&files).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.bos(), tokenizer.eos()), (272, Some(0), Some(1)));
    assert_eq!(tokenizer.special_ids().pad, Some(2));
    assert_eq!(tokenizer.end_tokens(), [1]);
    for case in json("hf/tokenizer/expected.json").as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        for add_special in [false, true] {
            let found = tokenizer.encode(text.as_bytes(), EncodeOptions { add_special, parse_special: true }).unwrap();
            assert_eq!(found, ids(&case["ids"]), "{text:?}");
        }
        assert_eq!(tokenizer.decode(&ids(&case["ids"]), false).unwrap(), case["decoded"].as_str().unwrap().as_bytes());
    }
    let plain = tokenizer.encode(b"<s>the</s>", EncodeOptions::default()).unwrap();
    assert!(plain.iter().all(|&id| !tokenizer.is_special(id)), "{plain:?}");
    assert_eq!(tokenizer.decode(&plain, true).unwrap(), b"<s>the</s>");
    assert_eq!(tokenizer.decode(&[0, 260, 1], true).unwrap(), b"the");
}
