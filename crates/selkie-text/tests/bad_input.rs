//! Vocabularies that contradict themselves, and texts that are none: one clear line, or an answer, and never a panic.

mod common;

use std::time::{Duration, Instant};

use common::tokenizer;
use selkie_text::{EncodeOptions, GgufVocab, HuggingFaceFiles, SpecialIds, Tokenizer};

/// A byte-level vocabulary in which something can be broken.
fn bytes_vocab() -> GgufVocab<'static> {
    GgufVocab {
        model: "gpt2",
        pre: Some("gpt-2"),
        tokens: ["<s>", "a", "b", "Ġ", "ab", "Ġab", "<u>"].map(str::as_bytes).to_vec(),
        token_types: Some(vec![3, 1, 1, 1, 1, 1, 4].into()),
        merges: ["a b", "Ġ ab"].map(str::as_bytes).to_vec(),
        ..GgufVocab::default()
    }
}

/// A SentencePiece vocabulary like that of Llama 2.
fn spm_vocab() -> GgufVocab<'static> {
    GgufVocab {
        model: "llama",
        tokens: ["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "▁a", "▁▁"].map(str::as_bytes).to_vec(),
        scores: Some(vec![0.0, 0.0, 0.0, 0.0, -3.0, -4.0, -1.0, -2.0].into()),
        token_types: Some(vec![2, 3, 3, 6, 1, 1, 1, 1].into()),
        ..GgufVocab::default()
    }
}

fn encode(vocab: &GgufVocab<'_>, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
    let options = EncodeOptions { add_special, parse_special };
    Tokenizer::from_gguf(vocab).unwrap().encode(text.as_bytes(), options).unwrap()
}

#[test]
fn small_vocabularies_work() {
    assert_eq!(encode(&bytes_vocab(), "ab ab<u><s>", false, false), [4, 5, 6]);
    assert_eq!(encode(&bytes_vocab(), "ab ab<u><s>", false, true), [4, 5, 6, 0]);
    // A space before the text, and before what follows a special token; bytes without a token are unknown.
    assert_eq!(encode(&spm_vocab(), "a\na</s>a", true, true), [1, 6, 3, 5, 2, 6]);
    assert_eq!(encode(&spm_vocab(), "", true, true), [1]);
    assert_eq!(encode(&spm_vocab(), "az", false, false), [6, 0]);
    let tokenizer = Tokenizer::from_gguf(&spm_vocab()).unwrap();
    assert_eq!(tokenizer.decode(&[1, 6, 3, 5], true).unwrap(), b"a\na");
    assert_eq!(tokenizer.decode(&[1, 6, 3, 5], false).unwrap(), b"<s> a\na");
    assert_eq!(tokenizer.decode(&[7, 5], false).unwrap(), b" a".map(|byte| byte));
    let mut rest = selkie_text::Detokenizer::new(&tokenizer, true).continuing();
    assert_eq!(rest.push(6).unwrap(), " a");
    let plain = GgufVocab { add_space_prefix: Some(false), ..spm_vocab() };
    assert_eq!(encode(&plain, "a", false, false), [5]);
}

#[test]
fn contradictions_are_named() {
    let fails = |vocab: &GgufVocab<'_>| Tokenizer::from_gguf(vocab).unwrap_err().to_string();
    let special = |special: SpecialIds| GgufVocab { special, ..bytes_vocab() };
    assert_eq!(
        fails(&GgufVocab { model: "rwkv", ..bytes_vocab() }),
        "tokenizer kind `rwkv` is not supported (known: gpt2, llama)"
    );
    assert_eq!(fails(&GgufVocab { tokens: Vec::new(), ..bytes_vocab() }), "tokenizer: tokens: there are none");
    assert_eq!(
        fails(&GgufVocab { merges: vec![b"a b", b"a x"], ..bytes_vocab() }),
        "tokenizer: merges: merge 1 `a x`: its result `ax` is not in the vocabulary"
    );
    assert_eq!(
        fails(&GgufVocab { merges: vec!["Ġa b".as_bytes()], ..bytes_vocab() }),
        "tokenizer: merges: merge 0 `Ġa b`: its left part `Ġa` is not in the vocabulary"
    );
    assert_eq!(
        fails(&GgufVocab { merges: vec![b"ab"], ..bytes_vocab() }),
        "tokenizer: merges: merge 0 `ab` is not two tokens"
    );
    assert_eq!(
        fails(&special(SpecialIds { bos: Some(7), ..SpecialIds::default() })),
        "tokenizer: bos_token_id: 7 is outside the vocabulary of 7"
    );
    assert_eq!(
        fails(&GgufVocab { token_types: Some(vec![1; 3].into()), ..bytes_vocab() }),
        "tokenizer: token_type: 3 entries for 7 tokens"
    );
    assert_eq!(
        fails(&GgufVocab { token_types: Some(vec![9; 7].into()), ..bytes_vocab() }),
        "tokenizer: token_type: token 0 has the unknown type 9"
    );
    assert_eq!(
        fails(&GgufVocab { scores: Some(vec![0.0; 9].into()), ..spm_vocab() }),
        "tokenizer: scores: 9 entries for 8 tokens"
    );
    assert_eq!(fails(&GgufVocab { scores: None, ..spm_vocab() }), "tokenizer: scores: missing");
    assert_eq!(
        fails(&GgufVocab { add_bos: Some(true), ..bytes_vocab() }),
        "tokenizer: add_bos_token: set, but the model has no such token"
    );
    let odd = Tokenizer::from_gguf(&GgufVocab { pre: Some("x\u{0}y"), ..bytes_vocab() }).unwrap();
    assert_eq!(odd.warnings().len(), 1);
}

#[test]
fn odd_vocabularies_do_no_harm() {
    let empty = GgufVocab { tokens: vec![b"", b"", b"\xff"], merges: vec![b"  "], token_types: None, ..bytes_vocab() };
    let _ = Tokenizer::from_gguf(&empty).map(|tokenizer| tokenizer.encode(b"a  b", EncodeOptions::default()));
    let nan = GgufVocab { scores: Some(vec![f32::NAN; 8].into()), ..spm_vocab() };
    assert!(!encode(&nan, "aaa", true, true).is_empty());
    let empty = GgufVocab { tokens: vec![b""; 8], ..spm_vocab() };
    // Begin of text, and an unknown token for each byte of the mark and the letters.
    assert_eq!(encode(&empty, "aaa", true, true), [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn json_files_that_are_none() {
    let good = std::fs::read(common::fixture("hf/tokenizer/tokenizer.json")).unwrap();
    let fails = |tokenizer: &[u8], config: Option<&[u8]>| {
        let files = HuggingFaceFiles { tokenizer, config, chat_template: None };
        let line = Tokenizer::from_huggingface(&files).unwrap_err().to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    assert!(fails(b"", None).starts_with("tokenizer.json: "));
    assert!(fails(b"{\"model\": 3}", None).starts_with("tokenizer.json: "));
    assert!(fails(&good, Some(b"[")).starts_with("tokenizer_config.json: "));
    let config = br#"{"bos_token": {"content": "<bos>"}}"#;
    assert_eq!(fails(&good, Some(config)), "tokenizer_config.json: bos_token `<bos>` is not in the vocabulary");
    assert!(fails(&good, Some(br#"{"chat_template": [{"name": "x"}]}"#)).contains("chat_template"));
    let config = br#"{"eos_token": null, "add_bos_token": true, "bos_token": "<s>", "chat_template": [
        {"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}"#;
    let files = HuggingFaceFiles { tokenizer: &good, config: Some(config), chat_template: None };
    let tokenizer = Tokenizer::from_huggingface(&files).unwrap();
    assert_eq!(tokenizer.encode(b"the", EncodeOptions { add_special: true, parse_special: false }).unwrap(), [0, 260]);
    assert_eq!(tokenizer.templates()[0].source, "D");
    assert_eq!(tokenizer.chat_template(Some("tool_use")).unwrap().unwrap().name(), "tool_use");
    assert!(tokenizer.chat_template(Some("rag")).unwrap().is_none());
}

#[test]
fn long_texts_without_a_break() {
    let models = [tokenizer("smollm2"), tokenizer("gemma3")];
    for text in [&b"a"[..], b"ab", b" ", b"\n", b"<", b"\xff", "é".as_bytes(), b"<|im_end|><end_of_turn>"] {
        for tokenizer in &models {
            let text = text.repeat((1 << 18) / text.len());
            let start = Instant::now();
            let ids = tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: true }).unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "{} took {:?}", text[0], start.elapsed());
            let back = tokenizer.decode(&ids, false).unwrap();
            if text[0] != 0xff {
                assert_eq!(back, text);
            }
        }
    }
}
