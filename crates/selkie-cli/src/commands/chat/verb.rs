//! What can be typed that is not for the model.

use std::{env, path::PathBuf};

/// A command of the conversation: a line that begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub enum Verb {
    /// Tell what can be typed.
    Help,
    /// Forget all but the system message.
    Reset,
    /// Set the system message, or take it away.
    System(Option<String>),
    /// Answer the last question again.
    Regenerate,
    /// Write the conversation to a file.
    Save(PathBuf),
    /// Go on with the conversation in a file.
    Load(PathBuf),
    /// Leave.
    Exit,
}

impl Verb {
    /// What `/help` prints.
    pub const HELP: &str = include_str!("help.txt");

    const NAMES: &str = "/help, /reset, /system, /regenerate, /save, /load, /exit";

    /// The command in `typed`; `None` where it is for the model: no slash begins it, or it has several lines.
    pub fn parse(typed: &str) -> Option<Result<Self, String>> {
        let line = typed.strip_prefix('/').filter(|line| !line.contains('\n'))?;
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        Some(match (name, rest) {
            ("help" | "?", "") => Ok(Verb::Help),
            ("reset", "") => Ok(Verb::Reset),
            ("system", text) => Ok(Verb::System((!text.is_empty()).then(|| text.to_owned()))),
            ("regenerate", "") => Ok(Verb::Regenerate),
            ("save" | "load", "") => Err(format!("/{name} needs a FILE")),
            ("save", file) => Ok(Verb::Save(path(file))),
            ("load", file) => Ok(Verb::Load(path(file))),
            ("exit" | "quit", "") => Ok(Verb::Exit),
            ("help" | "?" | "reset" | "regenerate" | "exit" | "quit", _) => {
                Err(format!("/{name} takes nothing after it"))
            }
            _ => {
                Err(format!("there is no /{name}, only {}; a space before the slash says it to the model", Self::NAMES))
            }
        })
    }
}

/// No shell has seen the name, so `~/` is ours to read.
fn path(typed: &str) -> PathBuf {
    match (typed.strip_prefix("~/"), env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => typed.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Option<Result<Verb, String>> {
        Verb::parse(typed)
    }

    #[test]
    fn lines_with_a_slash_are_commands() {
        assert_eq!(parse("/help"), Some(Ok(Verb::Help)));
        assert_eq!(parse("/quit "), Some(Ok(Verb::Exit)));
        assert_eq!(parse("/system  Be brief. "), Some(Ok(Verb::System(Some("Be brief.".into())))));
        assert_eq!(parse("/system"), Some(Ok(Verb::System(None))));
        assert_eq!(parse("/save a b.json"), Some(Ok(Verb::Save("a b.json".into()))));
        assert_eq!(parse("hello /help"), None);
        assert_eq!(parse(" /help"), None);
        assert_eq!(parse("/* a comment\n in C */"), None);
    }

    #[test]
    fn what_is_no_command_is_said() {
        let error = |typed| parse(typed).expect("a command").unwrap_err();
        assert!(error("/sing").starts_with("there is no /sing, only /help, "));
        assert_eq!(error("/load"), "/load needs a FILE");
        assert_eq!(error("/reset all"), "/reset takes nothing after it");
    }

    #[test]
    fn help_names_every_command() {
        for name in Verb::NAMES.split(", ") {
            assert!(Verb::HELP.contains(name), "{name}");
        }
    }
}
