//! A conversation with a person: what is typed goes to the model or is a command.

use std::path::Path;

use anyhow::{Result, bail};
use selkie::{Chat, Error, Finish, GenerateOptions, Generated, Model, models::FetchOptions};

use super::{input::Input, saved, verb::Verb};
use crate::{
    answer::Answer,
    commands::generate::{summary, to_json},
    terminal::{self, dim, print_line},
};

/// A conversation, and what it needs to go on.
pub struct Conversation {
    /// The messages.
    pub chat: Chat,
    /// Who answers.
    pub model: Model,
    /// How it answers.
    pub options: GenerateOptions,
    /// What the model was asked for by, for files.
    pub name: String,
}

impl Conversation {
    /// Says `text` and prints the answer as it comes, and below it what it took.
    pub fn say(&mut self, text: &str) -> Result<()> {
        let generated = self.answer(text, true)?;
        dim(&summary(&generated));
        if let Some(why) = self.cut_short(&generated) {
            dim(&why);
        }
        Ok(())
    }

    /// Says `text` and prints the answer as a JSON object when it is whole.
    pub fn say_json(&mut self, text: &str) -> Result<()> {
        let generated = self.answer(text, false)?;
        Ok(print_line(to_json(&generated, generated.timings.prompt_tokens))?)
    }

    fn answer(&mut self, text: &str, shown: bool) -> Result<Generated> {
        if text.trim().is_empty() {
            return Err(Error::EmptyPrompt.into());
        }
        let mut answer = Answer::new(shown);
        let generated = self.chat.say(&mut self.model, text, &self.options, &mut |event| answer.hear(event));
        answer.end()?;
        generated.map_err(with_room)
    }

    /// Why an answer is not whole.
    fn cut_short(&self, generated: &Generated) -> Option<String> {
        let (tokens, capacity) = self.chat.context();
        match generated.finish {
            Finish::Stop => None,
            Finish::Cancelled if generated.text.is_empty() => {
                Some("stopped before the first word; as if not asked".into())
            }
            Finish::Cancelled => Some("stopped".into()),
            Finish::Length if tokens >= capacity => Some(format!("the context of {capacity} tokens is full; {ROOM}")),
            Finish::Length => Some(format!("stopped after {} tokens; -n N allows more", generated.ids.len())),
        }
    }

    /// Talks until the person leaves. What goes wrong is said, and the conversation goes on.
    pub fn hold(&mut self) -> Result<()> {
        let mut input = Input::new(FetchOptions::from_env().selkie_home)?;
        // After the line editor is made, which takes Ctrl-C for itself, though it reads it as a key.
        terminal::catch_interrupts();
        let (backend, device) = (self.model.backend(), self.model.device());
        dim(&format!("{} on {backend} ({device}); /help tells what can be typed", self.name));
        while let Some(typed) = input.read()? {
            let done = match Verb::parse(&typed) {
                Some(Ok(Verb::Exit)) => break,
                Some(Ok(verb)) => self.obey(verb),
                Some(Err(what)) => Err(anyhow::anyhow!(what)),
                None => self.say(typed.trim()),
            };
            match done {
                Err(error) if terminal::is_broken_pipe(&error) => return Err(error),
                Err(error) => terminal::note(format_args!("selkie: {error:#}")),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn obey(&mut self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Help => terminal::note(Verb::HELP.trim_end()),
            Verb::Reset => {
                self.chat.reset();
                dim("the conversation starts over");
            }
            Verb::System(text) => {
                let now = if text.is_some() { "set" } else { "gone" };
                let old = self.chat.set_system(text).map_or_else(String::new, |old| format!("; it was: {old}"));
                dim(&format!("the system message is {now}{old}"));
            }
            Verb::Regenerate => self.regenerate()?,
            Verb::Save(path) => {
                saved::save(&path, &self.name, self.chat.snapshot(&self.model)?)?;
                dim(&format!("the conversation is in {}", path.display()));
            }
            Verb::Load(path) => self.load(&path)?,
            Verb::Exit => {}
        }
        Ok(())
    }

    /// Asks the last question again. Another seed, or the answer would be the same.
    fn regenerate(&mut self) -> Result<()> {
        let before = self.chat.messages.clone();
        let Some(question) = self.chat.take_back() else { bail!("nothing has been asked yet") };
        self.options.seed = self.options.seed.wrapping_add(1);
        let said = self.say(&question);
        if self.chat.messages.len() < before.len() {
            self.chat.messages = before;
        }
        said
    }

    fn load(&mut self, path: &Path) -> Result<()> {
        let saved = saved::load(path)?;
        match saved.state {
            Some(state) => self.chat.restore(&self.model, &state).map_err(with_room)?,
            None => {
                if saved.model != self.name {
                    let (then, now) = (saved.model, &self.name);
                    terminal::note(format_args!("warning: it was held with {then}, and goes on with {now}"));
                }
                self.chat.messages = saved.messages;
            }
        }
        dim(&format!("the conversation of {} goes on", path.display()));
        Ok(())
    }
}

/// The error, with what helps against it.
fn with_room(error: Error) -> anyhow::Error {
    match error {
        Error::PromptTooLong { .. } => anyhow::anyhow!("{error}; {ROOM}"),
        error => error.into(),
    }
}

/// What helps where the context is too small.
const ROOM: &str = "/reset starts over, --context N makes room";
