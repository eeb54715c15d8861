//! A model's text side: tokenizer and chat template, without its weights.

use std::{cell::OnceCell, rc::Rc, sync::Arc};

use selkie_text::{ChatTemplate, CivilTime, EncodeOptions, RenderInput, Tokenizer};
use serde_json::Value;
use web_time::SystemTime;

use crate::{Error, Opened, Result};

/// Tokenizer and chat template of a model, each read when it is first asked for.
pub struct TextSide {
    opened: Rc<Opened>,
    tokenizer: OnceCell<Arc<Tokenizer>>,
    template: OnceCell<Option<ChatTemplate>>,
}

impl TextSide {
    /// The text side of opened files.
    pub fn new(opened: Rc<Opened>) -> Self {
        Self { opened, tokenizer: OnceCell::new(), template: OnceCell::new() }
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// Where the model has none, or it is malformed.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = self.opened.tokenizer()?;
        tokenizer.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(self.tokenizer.get_or_init(|| Arc::new(tokenizer)))
    }

    /// The tokenizer; `None` where the model has none.
    ///
    /// # Errors
    /// Where it is malformed.
    pub fn tokenizer_if_any(&self) -> Result<Option<Arc<Tokenizer>>> {
        match self.tokenizer() {
            Ok(tokenizer) => Ok(Some(tokenizer.clone())),
            Err(Error::NoTokenizer(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The chat template; `None` where the model has none.
    ///
    /// # Errors
    /// Where it is no Jinja, or the tokenizer is malformed.
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>> {
        if let Some(template) = self.template.get() {
            return Ok(template.as_ref());
        }
        let template = self.tokenizer()?.chat_template(None).map_err(|e| self.error(e))?;
        Ok(self.template.get_or_init(|| template).as_ref())
    }

    /// The ids of a text; with `add_special`, the tokens with which the model wants a text to begin. Special tokens that
    /// are written in the text stay text.
    ///
    /// # Errors
    /// Where the model has no tokenizer, or the text cannot be expressed.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let options = EncodeOptions { add_special, parse_special: false };
        self.tokenizer()?.encode(text.as_bytes(), options).map_err(|e| self.error(e))
    }

    /// The ids of a rendered prompt: special tokens are parsed, and none is added, since the template writes them itself.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<u32>> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        self.tokenizer()?.encode(prompt.as_bytes(), options).map_err(|e| self.error(e))
    }

    /// The prompt that the chat template makes of `messages`, a JSON list.
    ///
    /// # Errors
    /// Where the model has no template, or it fails.
    pub fn render_chat(&self, messages: &Value, tools: Option<&Value>, add_generation_prompt: bool) -> Result<String> {
        let no_template = || Error::NoChatTemplate(self.opened.files.name.clone());
        let template = self.chat_template()?.ok_or_else(no_template)?;
        let tokenizer = self.tokenizer()?;
        // The standard library's clock panics in a browser.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
        let input = RenderInput {
            tools,
            add_generation_prompt,
            now: now.map(|since| CivilTime::from_unix(since.as_secs())),
            bos_token: &tokenizer.token_text(tokenizer.bos()),
            eos_token: &tokenizer.token_text(tokenizer.eos()),
            ..RenderInput::new(messages)
        };
        template.render(&input).map_err(|e| self.error(e))
    }

    fn error(&self, error: selkie_text::Error) -> Error {
        Error::text(&self.opened.files.name, error)
    }
}
