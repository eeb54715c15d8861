//! Values as Python writes them, because that is what the models were trained on.

use minijinja::value::{Value, ValueKind};
use serde_json::Value as Json;

/// How `json.dumps` lays out a value.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout<'a> {
    /// Spaces a level, each item on its own line; everything on one line if there is none.
    pub(super) indent: Option<usize>,
    /// Between items; `, ` (`,` with an indent) if there is none.
    pub(super) item_separator: Option<&'a str>,
    /// Between a key and its value; `: ` if there is none.
    pub(super) key_separator: Option<&'a str>,
    /// Everything beyond ASCII as `\u` escapes.
    pub(super) ascii: bool,
    /// Keys in alphabetical order, instead of the order in which they came.
    pub(super) sort_keys: bool,
}

impl Layout<'_> {
    /// Appends `value` as JSON. `depth` counts the containers around it.
    pub(super) fn write(&self, value: &Json, depth: usize, out: &mut String) {
        match value {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => out.push_str(&number_text(number)),
            Json::String(text) => self.write_string(text, out),
            Json::Array(items) => {
                self.write_items(('[', ']'), items, depth, out, |item, out| self.write(item, depth + 1, out));
            }
            Json::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| *key);
                }
                self.write_items(('{', '}'), &entries, depth, out, |(key, value), out| {
                    self.write_string(key, out);
                    out.push_str(self.key_separator.unwrap_or(": "));
                    self.write(value, depth + 1, out);
                });
            }
        }
    }

    /// Appends a list of anything.
    fn write_items<T>(
        &self,
        (open, close): (char, char),
        items: &[T],
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(&T, &mut String),
    ) {
        let new_line = |depth: usize, out: &mut String| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(self.item_separator.unwrap_or(if self.indent.is_some() { "," } else { ", " }));
            }
            new_line(depth + 1, out);
            write(item, out);
        }
        if !items.is_empty() {
            new_line(depth, out);
        }
        out.push(close);
    }

    /// Appends a string in double quotes.
    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
                _ if self.ascii && !char.is_ascii() => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(char),
            }
        }
        out.push('"');
    }
}

/// A number as Python's `repr` writes it.
fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    }
}

/// A float as Python's `repr` writes it: the shortest digits that read back the same, with an exponent outside
/// 1e-4 to 1e16.
fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float:?}")
}

/// What Python's `str` makes of a value.
pub(super) fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.to_string(),
        _ => {
            let mut out = String::new();
            write_repr(value, 0, &mut out);
            out
        }
    }
}

/// Whether [`text`] differs from what the template engine would write.
pub(super) fn is_spelt_otherwise(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Bool | ValueKind::None | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Number => !value.is_integer(),
        _ => false,
    }
}

/// Appends what Python's `repr` makes of a value.
fn write_repr(value: &Value, depth: usize, out: &mut String) {
    /// Containers inside containers beyond this are cut, as a guard against ones that contain themselves.
    const DEEPEST: usize = 100;
    if depth > DEEPEST {
        out.push('…');
        return;
    }
    match value.kind() {
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(float) => out.push_str(&float_text(float)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::Seq => {
            out.push('[');
            for (at, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(&item, depth + 1, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(&key, depth + 1, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// Appends a string in Python's quotes: single ones, unless the string has those and no double ones.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if char == quote => out.extend(['\\', char]),
            '\0'..='\u{1f}' | '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(char))),
            _ => out.push(char),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dumps(value: &Json, layout: Layout<'_>) -> String {
        let mut out = String::new();
        layout.write(value, 0, &mut out);
        out
    }

    #[test]
    fn json_as_python_dumps_it() {
        let value = json!({"b": [1, 2.0, 1e20, -1.5e-7], "a": {}, "é<>&'": "\u{1}\"\\\n😀", "e": []});
        let line = r#"{"b": [1, 2.0, 1e+20, -1.5e-07], "a": {}, "é<>&'": "\u0001\"\\\n😀", "e": []}"#;
        assert_eq!(dumps(&value, Layout::default()), line);
        let indented = dumps(&json!({"b": [1, {}], "a": null}), Layout { indent: Some(2), ..Layout::default() });
        assert_eq!(indented, "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": null\n}");
        let ascii = Layout { ascii: true, sort_keys: true, item_separator: Some(","), ..Layout::default() };
        assert_eq!(dumps(&json!({"z": true, "a": "é😀"}), ascii), r#"{"a": "\u00e9\ud83d\ude00","z": true}"#);
    }

    #[test]
    fn values_as_python_prints_them() {
        let value = Value::from(minijinja::value::Serde(json!({"a": [true, null, "it's", "q\"'", 1.0], "b": "x\n"})));
        assert_eq!(text(&value), r#"{'a': [True, None, "it's", 'q"\'', 1.0], 'b': 'x\n'}"#);
        assert_eq!(text(&Value::from("x\n")), "x\n");
        assert_eq!(text(&Value::UNDEFINED), "");
    }
}
