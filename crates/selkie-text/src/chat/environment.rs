//! The environment that templates were written for: that of the `transformers` library.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::python::{self, Layout};

/// Marks errors that a template raised itself, so that its words are given without ornament.
#[derive(Debug)]
struct Raised;

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

/// Whether the template raised this error through `raise_exception`.
pub(super) fn is_raised(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Raised>())
}

/// An environment without templates.
pub(super) fn new() -> Environment<'static> {
    let mut environment = Environment::new();
    // The delimiters are the standard ones, so this cannot fail; if it did, only white space would differ.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| {
        if python::is_spelt_otherwise(value) {
            out.write_str(&python::text(value)).map_err(Error::from)
        } else {
            minijinja::escape_formatter(out, state, value)
        }
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: Value| python::text(&value));
    environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, python::text(&message)).with_source(Raised))
    });
    environment
}

/// `tojson` as `transformers` defines it: `json.dumps` without escaping anything for HTML, keys in their order.
fn to_json(value: Value, arguments: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let indent = match arguments.first() {
        Some(indent) => Some(indent.clone()),
        None => options.get::<Option<Value>>("indent")?,
    };
    let indent = match indent.filter(|indent| !indent.is_none() && !indent.is_undefined()) {
        Some(indent) => Some(usize::try_from(indent)?),
        None => None,
    };
    if indent.is_some_and(|indent| indent > 64) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: an indent of more than 64"));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let separator = |at: usize| separators.as_ref().and_then(|list| list.get(at)).map(String::as_str);
    let layout = Layout {
        indent,
        item_separator: separator(0),
        key_separator: separator(1),
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let json = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    let mut out = String::new();
    layout.write(&json, 0, &mut out);
    Ok(Value::from_safe_string(out))
}

/// Methods of Python's strings, lists and dictionaries.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match string_method(text, name, arguments) {
            Some(result) => result,
            None => unknown_method_callback(state, value, name, arguments),
        },
        None => unknown_method_callback(state, value, name, arguments),
    }
}

/// The methods of strings that templates use and the engine's own list lacks.
fn string_method(text: &str, name: &str, arguments: &[Value]) -> Option<Result<Value, Error>> {
    let argument = |at: usize| arguments.get(at).and_then(Value::as_str);
    let needed = || argument(0).ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("{name} needs a text")));
    let three = |parts: [&str; 3]| Value::from(parts.map(Value::from).to_vec());
    Some(match name {
        "removeprefix" => needed().map(|prefix| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => needed().map(|suffix| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        "partition" => needed().map(|separator| match text.split_once(separator) {
            Some((before, after)) => three([before, separator, after]),
            None => three([text, "", ""]),
        }),
        "rpartition" => needed().map(|separator| match text.rsplit_once(separator) {
            Some((before, after)) => three([before, separator, after]),
            None => three(["", "", text]),
        }),
        "rsplit" if argument(0).is_some_and(|separator| !separator.is_empty()) => {
            let most = arguments.get(1).and_then(|most| usize::try_from(most.clone()).ok());
            needed().map(|separator| {
                let mut parts: Vec<Value> = match most {
                    Some(most) => text.rsplitn(most.saturating_add(1), separator).map(Value::from).collect(),
                    None => text.rsplit(separator).map(Value::from).collect(),
                };
                parts.reverse();
                Value::from(parts)
            })
        }
        _ => return None,
    })
}

/// The source with `{% generation %}` blocks opened up. They mark what the assistant said for training, and change nothing
/// in the text.
pub(super) fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(length) = tag[2..].find("%}") else {
            rest = tag;
            break;
        };
        let inside = &tag[2..2 + length];
        let (tag, after) = tag.split_at(2 + length + 2);
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        // The markers that trim white space stay where they are, and so does the line count.
        match word {
            "generation" => out.push_str(&tag.replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen(word, "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::without_generation_blocks;

    #[test]
    fn generation_blocks() {
        let source = "a{%- generation -%}b{% endgeneration %}{% set x = 1 %}{% unclosed";
        assert_eq!(without_generation_blocks(source), "a{%- if true -%}b{% endif %}{% set x = 1 %}{% unclosed");
        assert_eq!(without_generation_blocks("{% generation"), "{% generation");
        for short in ["{%%}", "{%}", "{%}}", "{%-%}"] {
            assert_eq!(without_generation_blocks(short), short);
        }
    }
}
