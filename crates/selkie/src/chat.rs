//! A conversation: messages, and the session that holds them.

use serde_json::{Value, json};

use crate::{Error, Finish, GenerateOptions, Generated, Model, OnEvent, Result, SavedState, Session};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What it says.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A conversation with a model.
///
/// Each turn renders all messages by the model's template; what the session holds already is not computed again.
pub struct Chat {
    /// The messages so far.
    pub messages: Vec<Message>,
    session: Session,
    /// The messages that the session's tokens are of, as long as they are of whole ones.
    held: Option<Vec<Message>>,
}

impl Chat {
    /// A conversation without messages, with room for `capacity` tokens.
    ///
    /// # Errors
    /// Where the model has no chat template, or there is no memory.
    pub fn new(model: &Model, capacity: usize) -> Result<Self> {
        if model.text().chat_template()?.is_none() {
            return Err(Error::NoChatTemplate(model.name().to_owned()));
        }
        Ok(Self { messages: vec![], session: model.session(capacity)?, held: None })
    }

    /// The conversation as a value that can be kept: its state, with `{"messages": [{"role": …, "content": …}, …]}` as
    /// the text. Messages that were taken back are not in it, in no form.
    ///
    /// # Errors
    /// Where the model's or the state's bytes cannot be read.
    pub fn snapshot(&self, model: &Model) -> Result<SavedState> {
        let mut saved = if self.held.as_ref() == Some(&self.messages) {
            model.snapshot(&self.session)?
        } else {
            model.snapshot(&model.session(1)?)?
        };
        saved.text = Some(json!({"messages": messages_json(&self.messages)}));
        Ok(saved)
    }

    /// Goes on with a conversation that was kept, in as much room as there is now. What its state holds is not computed
    /// again.
    ///
    /// # Errors
    /// Where it has no messages, and as [`Model::restore`]; the conversation is then as before.
    pub fn restore(&mut self, model: &Model, saved: &SavedState) -> Result<()> {
        let error = |what: String| Error::SavedState { file: saved.name.clone(), what };
        let text = saved.text.as_ref().ok_or_else(|| error("is a state without messages".into()))?;
        let messages = parse_messages(text).map_err(error)?;
        self.session = model.restore(saved, self.session.capacity())?;
        self.held = Some(messages.clone());
        self.messages = messages;
        Ok(())
    }

    /// Tokens that the conversation takes, and how many there is room for.
    pub fn context(&self) -> (usize, usize) {
        (self.session.len(), self.session.capacity())
    }

    /// Sets what the model is told before the conversation, or with `None` takes it away; gives what it was told before.
    pub fn set_system(&mut self, text: Option<String>) -> Option<String> {
        let old = self.messages.first().is_some_and(|m| m.role == "system").then(|| self.messages.remove(0).content);
        if let Some(text) = text {
            self.messages.insert(0, Message::new("system", text));
        }
        old
    }

    /// Forgets every message but the system message.
    pub fn reset(&mut self) {
        self.messages.truncate(1);
        self.messages.retain(|m| m.role == "system");
    }

    /// Takes the last question back, with what came after it, and gives the question.
    pub fn take_back(&mut self) -> Option<String> {
        let last = self.messages.iter().rposition(|m| m.role == "user")?;
        self.messages.drain(last..).next().map(|message| message.content)
    }

    /// Says `text` and gives the answer as it comes. Both become messages, a cancelled answer as far as it came; one that
    /// was cancelled before its first word leaves the messages as they were.
    ///
    /// # Errors
    /// Where the template fails, or the conversation has outgrown the context; the messages are then as before.
    pub fn say(
        &mut self,
        model: &mut Model,
        text: &str,
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        self.messages.push(Message::new("user", text));
        self.held = None;
        let text = model.text();
        let prompt = text.render_chat(&messages_json(&self.messages), None, true);
        let answered = prompt
            .and_then(|prompt| text.encode_prompt(&prompt))
            .and_then(|prompt| model.generate(&mut self.session, &prompt, options, on_event));
        match answered {
            Ok(generated) if generated.finish == Finish::Cancelled && generated.text.is_empty() => {
                self.messages.pop();
                Ok(generated)
            }
            Ok(generated) => {
                self.messages.push(Message::new("assistant", generated.text.clone()));
                self.held = Some(self.messages.clone());
                Ok(generated)
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }
}

/// Messages as templates take them.
pub fn messages_json(messages: &[Message]) -> Value {
    messages.iter().map(|m| json!({"role": m.role, "content": m.content})).collect()
}

/// The messages of `{"messages": [{"role": …, "content": …}, …]}`.
///
/// # Errors
/// What is not as it has to be, and where.
pub fn parse_messages(value: &Value) -> Result<Vec<Message>, String> {
    let messages = value.get("messages").and_then(Value::as_array).ok_or("there is no list `messages`")?;
    let message = |(i, message): (usize, &Value)| {
        let text = |key: &str| {
            let found = message.get(key).and_then(Value::as_str);
            found.ok_or_else(|| format!("message {i} has no string `{key}`"))
        };
        Ok(Message::new(text("role")?, text("content")?))
    };
    messages.iter().enumerate().map(message).collect()
}
