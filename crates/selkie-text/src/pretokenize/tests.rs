//! The scanners against the published regular expressions, run by a library for such.

use fancy_regex::Regex;
use proptest::prelude::*;

use super::PreTokenizer;

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const O200K_UPPER: &str = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
const O200K_LOWER: &str = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The expressions of a pre-tokenizer, in the order of its steps.
fn expressions(name: &str) -> Vec<String> {
    let spaces = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    let words = |letters: &str, digits: &str, outside: &str| {
        format!(r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^\s{outside}]+[\r\n]*|{spaces}")
    };
    let cased = |contractions: &str, digits: &str| {
        format!(
            r"[^\r\n\p{{L}}\p{{N}}]?{O200K_UPPER}*{O200K_LOWER}+{contractions}|[^\r\n\p{{L}}\p{{N}}]?{O200K_UPPER}+{O200K_LOWER}*{contractions}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{spaces}"
        )
    };
    let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    match name {
        "gpt-2" => own(&[GPT2]),
        "smollm" => own(&[r"\p{N}", GPT2]),
        "default" => own(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        "falcon" => own(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
        "llama-bpe" => vec![words(r"\p{L}", r"\p{N}{1,3}", r"\p{L}\p{N}")],
        "qwen2" => vec![words(r"\p{L}", r"\p{N}", r"\p{L}\p{N}")],
        "qwen35" => vec![words(r"[\p{L}\p{M}]", r"\p{N}", r"\p{L}\p{M}\p{N}")],
        "gpt-4o" => vec![cased(&format!("{CONTRACTIONS}?"), r"\p{N}{1,3}")],
        "tekken" => vec![cased("", r"\p{N}")],
        "deepseek-v3" => own(&[
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ]),
        "deepseek-coder" => own(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]),
        "bloom" => own(&[r" ?[^(\s|.,!?…。，、।۔،)]+"]),
        other => panic!("no expressions for {other}"),
    }
}

/// Cuts every piece at the matches of the next expression.
fn split_by_expressions<'a>(expressions: &[Regex], text: &'a str) -> Vec<&'a str> {
    let mut pieces = vec![text];
    for expression in expressions {
        let mut cut = Vec::new();
        for piece in pieces {
            let mut done = 0;
            for found in expression.find_iter(piece).map(Result::unwrap) {
                cut.extend([&piece[done..found.start()], found.as_str()]);
                done = found.end();
            }
            cut.push(&piece[done..]);
        }
        pieces = cut;
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Texts of bits on which the expressions turn.
fn texts() -> impl Strategy<Value = String> {
    const BITS: [&str; 56] = [
        "'", "'s", "'S", "'ll", "'Ll", "'re", "'VE", "'ſ", "s", "t", "d", "m", " ", "  ", "   ", "\n", "\r", "\r\n",
        "\t", "\u{a0}", "\u{3000}", "\u{85}", "\u{2028}", "a", "bc", "B", "CD", "é", "É", "ß", "ǅ", "ʰ", "你", "好",
        "ア", "가", "\u{301}", "\u{93e}", "1", "23", "4567", "٣", "½", "Ⅷ", "!", ".", "/", "$", "+", "`", "_", "…",
        "€", "😀", "\u{200b}", "\u{1}",
    ];
    proptest::collection::vec(proptest::sample::select(&BITS[..]), 0..24).prop_map(|bits| bits.concat())
}

#[test]
fn scanners_are_the_published_expressions() {
    for name in [
        "gpt-2",
        "smollm",
        "default",
        "falcon",
        "llama-bpe",
        "qwen2",
        "qwen35",
        "gpt-4o",
        "tekken",
        "deepseek-v3",
        "deepseek-coder",
        "bloom",
    ] {
        let expressions: Vec<_> = expressions(name).iter().map(|text| Regex::new(text).unwrap()).collect();
        let pre = PreTokenizer::named(name).unwrap();
        proptest!(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() }, |(text in texts())| {
            let found: Vec<&str> = pre.split(text.as_bytes()).into_iter().map(|range| &text[range]).collect();
            prop_assert_eq!(found, split_by_expressions(&expressions, &text), "{} {:?}", name, text);
        });
    }
}

fn pieces<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
    let pre = PreTokenizer::named(name).unwrap();
    pre.split(text.as_bytes()).into_iter().map(|range| &text[range]).collect()
}

#[test]
fn gpt2() {
    assert_eq!(pieces("gpt-2", "it's  a 12ab\n\n x "), ["it", "'s", " ", " a", " 12", "ab", "\n\n", " x", " "]);
    assert_eq!(pieces("gpt-2", "a  \n"), ["a", "  \n"]);
    assert_eq!(pieces("gpt-2", "IT'S ?!é"), ["IT", "'", "S", " ?!", "é"]);
    assert_eq!(pieces("smollm", "a 123"), ["a", " ", "1", "2", "3"]);
    assert!(pieces("gpt-2", "").is_empty());
}

#[test]
fn llama3_and_qwen2() {
    assert_eq!(
        pieces("llama-bpe", "IT'S (word)12345 ...\n\n  x\t\ty"),
        ["IT", "'S", " (", "word", ")", "123", "45", " ...\n\n", " ", " x", "\t", "\ty"]
    );
    assert_eq!(pieces("qwen2", "a1234"), ["a", "1", "2", "3", "4"]);
    assert_eq!(pieces("llama-bpe", "x  \n \n  y"), ["x", "  \n \n", " ", " y"]);
    assert_eq!(pieces("llama-bpe", "e\u{301}a"), ["e", "\u{301}a"]);
    assert_eq!(pieces("qwen35", "e\u{301}a"), ["e\u{301}a"]);
}

#[test]
fn o200k() {
    assert_eq!(pieces("gpt-4o", "HelloWORLDfooBar's"), ["Hello", "WORLDfoo", "Bar's"]);
    assert_eq!(pieces("gpt-4o", "ABC 你AB/\n/x"), ["ABC", " 你", "AB", "/\n/", "x"]);
    assert_eq!(pieces("tekken", "don't 12"), ["don", "'t", " ", "1", "2"]);
}

#[test]
fn others() {
    assert_eq!(pieces("default", "a+b 12345!"), ["a", "+", "b", " ", "123", "45", "!"]);
    assert_eq!(pieces("deepseek-v3", "a1234日本x ->y"), ["a", "123", "4", "日本", "x", " ->", "y"]);
    assert_eq!(pieces("deepseek-v3", "1\u{1}2"), ["1", "\u{1}", "2"]);
    assert_eq!(pieces("bloom", "a b, c"), ["a", " b", ",", " c"]);
}
