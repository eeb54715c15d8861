//! Chat templates: the model's own Jinja, rendered as its authors' tools render it.

mod apart;
mod clock;
mod environment;
mod python;

use std::io::{self, Write};
use std::sync::Arc;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;

use crate::error::{Error, Result, one_line};

pub use clock::CivilTime;

/// Built-in templates, for models whose files have none. The caller chooses; nothing here guesses.
const BUILTIN: [(&str, &str); 4] = [
    ("chatml", include_str!("builtin/chatml.jinja")),
    ("gemma", include_str!("builtin/gemma.jinja")),
    ("llama2", include_str!("builtin/llama2.jinja")),
    ("llama3", include_str!("builtin/llama3.jinja")),
];

/// What one rendering may cost: an instruction of a template costs about one, 64 bytes of text that it makes as well. Enough
/// for thousands of messages and for about 200 MB of text on the way; a template that loops spends it within a second.
///
/// The engine does not charge for joining lists with `+`, so a template that doubles a list over and over is not caught by
/// this. Templates come with models; do not render one of a model that you would not run.
const FUEL: u64 = 3_000_000;

/// The longest prompt, in bytes.
const LONGEST_PROMPT: usize = 64 << 20;

/// The largest template source, in bytes. Published ones have up to 30 KB, and what is parsed takes stack with its length.
const LONGEST_SOURCE: usize = 256 << 10;

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    name: String,
    environment: Arc<Environment<'static>>,
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// The conversation: a list of objects with `role` and `content`, and whatever else the model's template knows.
    pub messages: &'a Json,
    /// The tools that the model may call, as JSON schemas.
    pub tools: Option<&'a Json>,
    /// Documents for models that answer from some.
    pub documents: Option<&'a Json>,
    /// Whether the prompt ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// What `strftime_now` says. `None`: the function is undefined, and templates that ask for it have a date of their own.
    pub now: Option<CivilTime>,
    /// The text of the token that starts a text, empty if there is none.
    pub bos_token: &'a str,
    /// The text of the token that ends a text, empty if there is none.
    pub eos_token: &'a str,
    /// Further variables, such as `enable_thinking`. They go before the ones above.
    pub extra: Option<&'a serde_json::Map<String, Json>>,
}

impl<'a> RenderInput<'a> {
    /// A conversation to be continued by the assistant, and nothing else.
    #[must_use]
    pub fn new(messages: &'a Json) -> Self {
        Self {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            now: None,
            bos_token: "",
            eos_token: "",
            extra: None,
        }
    }
}

impl ChatTemplate {
    /// Compiles a template. The name is for error messages.
    ///
    /// # Errors
    /// [`Error::Template`] where the source is no Jinja.
    pub fn new(name: &str, source: &str) -> Result<Self> {
        if source.len() > LONGEST_SOURCE {
            let what = format!("{} bytes of source are more than {LONGEST_SOURCE}", source.len());
            return Err(Error::Template { name: name.to_owned(), line: None, what });
        }
        let (owned, source) = (name.to_owned(), source.to_owned());
        let environment = apart::run(name, move || {
            let mut environment = environment::new();
            environment.set_fuel(Some(FUEL));
            environment
                .add_template_owned(TEMPLATE, environment::without_generation_blocks(&source))
                .map_err(|error| describe(&owned, &error))?;
            Ok(environment)
        })?;
        Ok(Self { name: name.to_owned(), environment: Arc::new(environment) })
    }

    /// One of the built-in templates: `chatml`, `gemma`, `llama2` or `llama3`.
    ///
    /// # Errors
    /// [`Error::UnknownTemplate`] for another name.
    pub fn builtin(name: &str) -> Result<Self> {
        match BUILTIN.iter().find(|(known, _)| *known == name) {
            Some((name, source)) => Self::new(name, source),
            None => {
                let known = Self::builtin_names().collect::<Vec<_>>().join(", ");
                Err(Error::UnknownTemplate { name: name.to_owned(), known })
            }
        }
    }

    /// The names of the built-in templates.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The template's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The prompt for a conversation. It is to be tokenised with
    /// [`parse_special`](crate::EncodeOptions::parse_special), and without adding special tokens: it has its own.
    ///
    /// # Errors
    /// [`Error::Template`] where the template fails, raises an exception, loops for too long or writes too much.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String> {
        let mut variables = serde_json::Map::new();
        variables.insert("messages".into(), input.messages.clone());
        variables.insert("tools".into(), input.tools.cloned().unwrap_or(Json::Null));
        variables.insert("documents".into(), input.documents.cloned().unwrap_or(Json::Null));
        variables.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        variables.insert("bos_token".into(), input.bos_token.into());
        variables.insert("eos_token".into(), input.eos_token.into());
        variables.extend(input.extra.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        let (name, environment, now) = (self.name.clone(), self.environment.clone(), input.now);
        apart::run(&self.name, move || render(&name, &environment, &variables, now))
    }
}

fn render(
    name: &str,
    environment: &Environment<'_>,
    variables: &serde_json::Map<String, Json>,
    now: Option<CivilTime>,
) -> Result<String> {
    let mut context = Value::from(Serde(variables));
    if let Some(now) = now {
        let clock = Value::from_function(move |format: &str| now.format(format));
        context = minijinja::context! { strftime_now => clock, ..context };
    }
    let mut prompt = Bounded { bytes: Vec::new(), overflowed: false };
    let template = environment.get_template(TEMPLATE).map_err(|error| describe(name, &error))?;
    let rendered = template.render_captured_to(context, &mut prompt).map(|_| ());
    let error = |what: String| Error::Template { name: name.to_owned(), line: None, what };
    if prompt.overflowed {
        return Err(error(format!("the prompt is longer than {LONGEST_PROMPT} bytes")));
    }
    rendered.map_err(|error| describe(name, &error))?;
    String::from_utf8(prompt.bytes).map_err(|_| error("the prompt is not UTF-8".to_owned()))
}

/// What the template is called inside its environment, where nothing else is.
const TEMPLATE: &str = "chat";

/// Says in one line what went wrong, and where.
fn describe(name: &str, error: &minijinja::Error) -> Error {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it runs for too long or makes too much text".to_owned(),
        kind => match error.detail() {
            Some(detail) if environment::is_raised(error) => detail.to_owned(),
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    };
    Error::Template { name: name.to_owned(), line: error.line(), what: one_line(&what) }
}

/// Collects the prompt up to a length.
struct Bounded {
    bytes: Vec<u8>,
    overflowed: bool,
}

impl Write for Bounded {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + text.len() > LONGEST_PROMPT {
            self.overflowed = true;
            return Err(io::Error::other("too long"));
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
