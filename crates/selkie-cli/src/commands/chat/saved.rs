//! Conversations in files: `{"model": …, "messages": [{"role": …, "content": …}, …]}`.

use std::{fs, io::Write, path::Path};

use anyhow::{Context, Result, bail};
use selkie::{Message, messages_json};
use serde_json::{Value, json};

use crate::{args::read_json, whole_file};

/// A conversation, read from a file.
#[derive(Debug)]
pub struct Saved {
    /// What the model was asked for by.
    pub model: String,
    /// What was said.
    pub messages: Vec<Message>,
}

/// Writes a conversation. It replaces an older conversation, and no other file.
pub fn save(path: &Path, model: &str, messages: &[Message]) -> Result<()> {
    if fs::symlink_metadata(path).is_ok() && load(path).is_err() {
        bail!("{}: is there, and no conversation: choose another name", path.display());
    }
    let saved = json!({ "model": model, "messages": messages_json(messages) });
    whole_file::write(path, |mut out| {
        serde_json::to_writer_pretty(&mut out, &saved)?;
        out.write_all(b"\n")?;
        Ok(out)
    })
}

/// Reads a conversation.
pub fn load(path: &Path) -> Result<Saved> {
    // A folder, or a device that never ends, is not read.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        bail!("{}: is no file", path.display());
    }
    let value = read_json(path)?;
    parse(&value).with_context(|| format!("{}: is no conversation", path.display()))
}

fn parse(value: &Value) -> Result<Saved> {
    let model = value.get("model").and_then(Value::as_str).context("there is no string `model`")?;
    let messages = value.get("messages").and_then(Value::as_array).context("there is no list `messages`")?;
    let message = |(i, message): (usize, &Value)| -> Result<Message> {
        let text = |key: &str| {
            let found = message.get(key).and_then(Value::as_str);
            found.with_context(|| format!("message {i} has no string `{key}`"))
        };
        Ok(Message::new(text("role")?, text("content")?))
    };
    let messages = messages.iter().enumerate().map(message).collect::<Result<_>>()?;
    Ok(Saved { model: model.to_owned(), messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        vec![Message::new("user", "Who\nis there?"), Message::new("assistant", "\"Me\" — 海")]
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        save(&path, "smollm2", &messages()[..1]).expect("saved");
        save(&path, "smollm2", &messages()).expect("saved over an older one");
        let saved = load(&path).expect("loaded");
        assert_eq!((saved.model.as_str(), saved.messages), ("smollm2", messages()));
    }

    #[test]
    fn other_files_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text, why) in [
            ("notes.txt", "my notes", "expected"),
            ("empty.json", "", "EOF"),
            ("list.json", "[]", "is no conversation: there is no string `model`"),
            ("half.json", r#"{"model": "m"}"#, "is no conversation: there is no list `messages`"),
            ("role.json", r#"{"model": "m", "messages": [{"role": "user"}]}"#, "message 0 has no string `content`"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            let error = format!("{:#}", load(&path).unwrap_err());
            assert!(error.starts_with(&path.display().to_string()) && error.contains(why), "{error}");
            let error = format!("{:#}", save(&path, "m", &messages()).unwrap_err());
            assert!(error.contains("no conversation: choose another name"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
        }
        assert!(load(folder.path()).unwrap_err().to_string().ends_with("is no file"));
    }
}
