//! Conversations in files: saved states with their messages, and, of older versions, messages alone as JSON
//! (`{"model": …, "messages": [{"role": …, "content": …}, …]}`).

use std::{fs, io::Read, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use selkie::{Message, SavedState, parse_messages};
use serde_json::{Value, json};

use crate::{args::read_json, whole_file};

/// A conversation, read from a file.
#[derive(Debug)]
pub struct Saved {
    /// What the model was asked for by.
    pub model: String,
    /// What was said.
    pub messages: Vec<Message>,
    /// What the model made of it; older files have messages only.
    pub state: Option<SavedState>,
}

/// Writes a conversation that was held with `model`. It replaces an older conversation, and no other file.
pub fn save(path: &Path, model: &str, mut state: SavedState) -> Result<()> {
    if fs::symlink_metadata(path).is_ok() && load(path).is_err() {
        bail!("{}: is there, and no conversation: choose another name", path.display());
    }
    if let Some(Value::Object(text)) = &mut state.text {
        text.insert("model".into(), json!(model));
    }
    whole_file::write(path, |out| Ok(state.write(out)?))
}

/// Reads a conversation.
pub fn load(path: &Path) -> Result<Saved> {
    // A folder, or a device that never ends, is not read.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        bail!("{}: is no file", path.display());
    }
    let (value, state) = if is_text(path)? {
        (read_json(path)?, None)
    } else {
        let state = SavedState::open(path)?;
        let text = state.text.clone().with_context(|| format!("{}: is a state without messages", path.display()))?;
        (text, Some(state))
    };
    let model = value.get("model").and_then(Value::as_str).context("there is no string `model`");
    let messages = parse_messages(&value).map_err(|what| anyhow!(what));
    let parsed = model.and_then(|model| Ok(Saved { model: model.to_owned(), messages: messages?, state }));
    parsed.with_context(|| format!("{}: is no conversation", path.display()))
}

/// Whether the file is text: a safetensors file begins with the length of its header, whose upper bytes are zeros.
fn is_text(path: &Path) -> Result<bool> {
    let mut start = vec![];
    let read = fs::File::open(path).and_then(|file| file.take(8).read_to_end(&mut start));
    read.with_context(|| path.display().to_string())?;
    Ok(!start.contains(&0))
}

#[cfg(test)]
mod tests {
    use selkie::messages_json;

    use super::*;

    fn messages() -> Vec<Message> {
        vec![Message::new("user", "Who\nis there?"), Message::new("assistant", "\"Me\" — 海")]
    }

    /// A state of a model without layers.
    fn state(messages: &[Message]) -> SavedState {
        SavedState {
            name: "x".into(),
            model: "m".into(),
            adapter: String::new(),
            positions: 0,
            token_hash: Default::default(),
            pending: vec![7],
            ids: None,
            text: Some(json!({"messages": messages_json(messages)})),
            planes: vec![],
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        save(&path, "smollm2", state(&messages()[..1])).expect("saved");
        save(&path, "smollm2", state(&messages())).expect("saved over an older one");
        let saved = load(&path).expect("loaded");
        assert_eq!((saved.model.as_str(), saved.messages), ("smollm2", messages()));
        assert_eq!(saved.state.expect("a state").pending, [7]);
    }

    #[test]
    fn messages_of_older_versions_are_read_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        let old = json!({"model": "smollm2", "messages": messages_json(&messages())});
        fs::write(&path, serde_json::to_vec_pretty(&old).expect("JSON")).expect("written");
        let saved = load(&path).expect("loaded");
        assert_eq!((saved.model.as_str(), saved.messages), ("smollm2", messages()));
        assert!(saved.state.is_none());
        save(&path, "smollm2", state(&messages())).expect("saved over it");
        assert!(load(&path).expect("loaded").state.is_some());
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
            let error = format!("{:#}", save(&path, "m", state(&messages())).unwrap_err());
            assert!(error.contains("no conversation: choose another name"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
        }
        assert!(load(folder.path()).unwrap_err().to_string().ends_with("is no file"));
    }
}
