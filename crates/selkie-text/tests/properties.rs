//! What must hold for every text and every template.

mod common;

use std::sync::LazyLock;

use proptest::prelude::*;
use selkie_text::{ChatTemplate, Detokenizer, EncodeOptions, RenderInput, StopRules, Tokenizer};

static SMOLLM2: LazyLock<Tokenizer> = LazyLock::new(|| common::tokenizer("smollm2"));
static GEMMA3: LazyLock<Tokenizer> = LazyLock::new(|| common::tokenizer("gemma3"));

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
}

fn options(add_special: bool, parse_special: bool) -> EncodeOptions {
    EncodeOptions { add_special, parse_special }
}

/// Whether SmolLM2's vocabulary has every byte of the text: it lacks six control characters and two bytes of rare planes.
fn has_bytes(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, 4 | 6 | 0x13 | 0x14 | 0x16 | 0x1d | 0xf1 | 0xf2))
}

/// A template made of bits that mean something to Jinja.
fn template() -> impl Strategy<Value = String> {
    const BITS: [&str; 32] = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        " for ",
        " m in messages ",
        " endfor ",
        " if ",
        " endif ",
        " set ",
        " x ",
        "=",
        "(",
        ")",
        "[",
        "]",
        "[::-1]",
        "|tojson",
        "|trim",
        ".split('a')",
        "'",
        "range(9)",
        " macro ",
        " endmacro ",
        " generation ",
        "*",
        "99999999",
        "\n",
    ];
    proptest::collection::vec(proptest::sample::select(&BITS[..]), 0..40).prop_map(|bits| bits.concat())
}

fn render(source: &str) {
    let messages = serde_json::json!([{"role": "user", "content": "hi"}]);
    if let Ok(template) = ChatTemplate::new("fuzz", source) {
        let _ = template.render(&RenderInput::new(&messages));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoding_loses_nothing(text in any::<String>().prop_filter("bytes", |text| has_bytes(text)), parse: bool) {
        let ids = SMOLLM2.encode(text.as_bytes(), options(false, parse)).unwrap();
        prop_assert_eq!(SMOLLM2.decode(&ids, false).unwrap(), text.as_bytes());
    }

    #[test]
    fn sentencepiece_loses_only_word_marks(text in any::<String>(), parse: bool) {
        let ids = GEMMA3.encode(text.as_bytes(), options(false, parse)).unwrap();
        let spaced = text.replace('▁', " ");
        prop_assert_eq!(GEMMA3.decode(&ids, false).unwrap(), spaced.as_bytes());
    }

    #[test]
    fn any_bytes_will_do(text in proptest::collection::vec(any::<u8>(), 0..200), add: bool, parse: bool) {
        for tokenizer in [&*SMOLLM2, &*GEMMA3] {
            let ids = tokenizer.encode(&text, options(add, parse)).unwrap();
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            tokenizer.decode(&ids, true).unwrap();
        }
    }

    #[test]
    fn streaming_is_decoding(ids in proptest::collection::vec(0..262_144u32, 0..40), skip: bool) {
        for tokenizer in [&*SMOLLM2, &*GEMMA3] {
            let ids: Vec<u32> = ids.iter().map(|id| id % tokenizer.vocab_size() as u32).collect();
            let mut stream = Detokenizer::new(tokenizer, skip);
            let mut text = String::new();
            for &id in &ids {
                text.push_str(stream.push(id).unwrap());
            }
            text.push_str(stream.finish());
            let whole = tokenizer.decode(&ids, skip).unwrap();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }

    #[test]
    fn stops_do_not_depend_on_pieces(
        pieces in proptest::collection::vec("[abé]{0,4}", 0..12),
        strings in proptest::collection::vec("[abé]{0,4}", 0..4),
    ) {
        let run = |pieces: &[String]| {
            let mut matcher = StopRules { ids: Vec::new(), strings: strings.clone() }.matcher();
            let mut text: String = pieces.iter().map(|piece| matcher.push(piece).emit).collect();
            let stopped = matcher.stopped();
            text.push_str(&matcher.finish());
            (text, stopped)
        };
        let whole = pieces.concat();
        let letters: Vec<String> = whole.chars().map(String::from).collect();
        let (text, stopped) = run(&pieces);
        prop_assert_eq!((text.clone(), stopped), run(&letters));
        prop_assert!(whole.starts_with(&text) && (stopped || text == whole));
        prop_assert!(strings.iter().all(|string| string.is_empty() || !text.contains(string.as_str())));
    }

    #[test]
    fn templates_may_be_anything(source in any::<String>()) {
        render(&source);
    }

    #[test]
    fn templates_may_be_nearly_right(source in template()) {
        render(&source);
    }
}
