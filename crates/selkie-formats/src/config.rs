//! Configuration files: JSON as Python writes it.

use serde_json::Value;

use crate::{Error, Result};

/// The words that Python writes for floats which JSON cannot hold.
const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Reads JSON in which `Infinity`, `-Infinity` and `NaN` may stand for numbers; they come out as the strings of that
/// spelling, which [`json_f64`] understands.
///
/// # Errors
/// [`Error::Read`] with `file`, line and column where it is not even that.
pub fn parse_lenient_json(file: &str, bytes: &[u8]) -> Result<Value> {
    let error = |what: String| Error::Read { file: file.to_owned(), what };
    let text = std::str::from_utf8(bytes).map_err(|_| error("not UTF-8".to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(&quote_words(text)).map_err(|problem| error(problem.to_string()))
}

/// A number from JSON: a number, one of the words for what JSON has no numbers for, or `{"__float__": word}`.
pub fn json_f64(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(word) => match word.as_str() {
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            "NaN" => Some(f64::NAN),
            _ => None,
        },
        Value::Object(object) if object.len() == 1 => {
            object.get("__float__").filter(|inner| !inner.is_object()).and_then(json_f64)
        }
        _ => None,
    }
}

/// Puts quotes around [`WORDS`] that stand outside of strings.
fn quote_words(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let word = WORDS.iter().copied().find(|word| rest.starts_with(word));
        let taken = match (next, word) {
            ('"', _) => string_len(rest),
            (_, Some(word)) => word.len(),
            _ => next.len_utf8(),
        };
        let (piece, later) = rest.split_at(taken);
        let quote = if word.is_some() { "\"" } else { "" };
        quoted.extend([quote, piece, quote]);
        rest = later;
    }
    quoted
}

/// Length of the JSON string that `text` begins with, its quotes included; all of `text` where it does not end.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_numbers() {
        let text =
            r#"{"a": Infinity, "b": [-Infinity,NaN, 1.5], "Infinity \" NaN": "é NaN", "c": {"__float__": "Infinity"}}"#;
        let value = parse_lenient_json("config.json", text.as_bytes()).unwrap();
        assert_eq!(json_f64(&value["a"]), Some(f64::INFINITY));
        assert_eq!(json_f64(&value["b"][0]), Some(f64::NEG_INFINITY));
        assert!(json_f64(&value["b"][1]).is_some_and(f64::is_nan));
        assert_eq!(json_f64(&value["b"][2]), Some(1.5));
        assert_eq!(value["Infinity \" NaN"], "é NaN");
        assert_eq!(json_f64(&value["c"]), Some(f64::INFINITY));
        assert_eq!(json_f64(&value["b"]), None);
        assert_eq!(json_f64(&value), None);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "{", "\"a", "Infinit", "{Infinity: 1", "nan", "\"\\", "InfinityNaN", "é"] {
            let error = parse_lenient_json("config.json", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("config.json: "), "{error}");
        }
        assert!(parse_lenient_json("config.json", b"\xff").is_err());
    }
}
