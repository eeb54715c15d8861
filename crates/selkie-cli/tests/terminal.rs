//! `selkie chat` with a person: what is typed into a terminal, and what it shows.

#![cfg(unix)]

mod common;

use std::{fs, time::Duration};

use common::{Folder, TEMPLATE, chat_model, command};
use rexpect::{
    process::WaitStatus,
    session::{PtySession, spawn_command},
};

/// What a person has before them.
struct Person {
    terminal: PtySession,
}

/// A conversation whose answers are short and the same each time.
const SHORT: &[&str] = &["-n", "4", "--temperature", "0", "--logit-bias", "1=-1000"];

/// One whose answers go on until somebody stops them.
const ENDLESS: &[&str] = &["-n", "100000", "--context", "100000", "--logit-bias", "1=-1000", "--seed", "1"];

impl Person {
    fn sit_down(folder: &Folder, more: &[&str]) -> Self {
        Self::sit_down_with(folder, TEMPLATE, more)
    }

    fn sit_down_with(folder: &Folder, template: &str, more: &[&str]) -> Self {
        let model = chat_model(folder, template);
        let args = [&["chat", "-m", &model], more].concat();
        let mut command = command(&args);
        command.env("SELKIE_HOME", folder.path("home")).env("TERM", "xterm").env_remove("NO_COLOR");
        // A terminal in place of what the other tests read from.
        command.stdin(std::process::Stdio::inherit());
        let mut person = Self { terminal: spawn_command(command, Some(20_000)).expect("a terminal") };
        person.sees("/help tells what can be typed");
        person.sees("> ");
        person
    }

    fn types(&mut self, line: &str) {
        self.terminal.send(&format!("{line}\r")).and_then(|_| self.terminal.flush()).expect("typed");
    }

    fn presses(&mut self, keys: &str) {
        self.terminal.send(keys).and_then(|_| self.terminal.flush()).expect("pressed");
    }

    /// Waits for `text`; gives what came before it.
    fn sees(&mut self, text: &str) -> String {
        self.terminal.exp_string(text).unwrap_or_else(|e| panic!("no {text:?}: {e}"))
    }

    /// Waits for the line below an answer, and the next prompt. Gives the prompt tokens that were computed.
    fn sees_an_answer(&mut self) -> usize {
        let before = self.sees(" prompt tokens at ");
        self.sees("first after ");
        self.sees("> ");
        let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_else(|e| panic!("{before:?}: {e}"))
    }

    fn leaves(mut self) {
        self.presses("\x04");
        self.ends();
    }

    fn ends(mut self) {
        self.terminal.exp_eof().expect("the end");
        let status = self.terminal.process().wait().expect("a status");
        assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    }
}

const CTRL_C: &str = "\x03";

/// The messages of a conversation in a file, as role and content.
fn saved(path: &str) -> Vec<(String, String)> {
    let file = selkie::SavedState::open(path.as_ref()).expect(path).text.expect("messages");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let messages = file["messages"].as_array().expect("messages");
    messages.iter().map(|m| (text(&m["role"]), text(&m["content"]))).collect()
}

fn roles(messages: &[(String, String)]) -> Vec<&str> {
    messages.iter().map(|(role, _)| role.as_str()).collect()
}

#[test]
fn a_conversation_is_saved_and_goes_on_elsewhere() {
    let folder = Folder::new();
    let file = folder.path("talk.json");
    let mut person = Person::sit_down(&folder, SHORT);
    person.types("/system Be brief.");
    person.sees("the system message is set");
    person.types("hello");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let first = saved(&file);
    assert_eq!(roles(&first), ["system", "user", "assistant"]);
    assert_eq!((first[0].1.as_str(), first[1].1.as_str()), ("Be brief.", "hello"));
    person.leaves();

    let mut person = Person::sit_down(&folder, SHORT);
    person.types(&format!("/load {file}"));
    person.sees(" goes on");
    person.types("and?");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let second = saved(&file);
    assert_eq!(second[..3], first);
    assert_eq!(roles(&second[3..]), ["user", "assistant"]);

    person.types("/reset");
    person.sees("the conversation starts over");
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    assert_eq!(saved(&file), first[..1]);
    person.leaves();
}

#[test]
fn what_was_read_before_it_was_saved_is_not_read_again() {
    let folder = Folder::new();
    let file = folder.path("talk.state");
    let mut person = Person::sit_down(&folder, SHORT);
    person.types("a question that takes a while to read, so that one sees the difference");
    let first = person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    person.types("and?");
    let second = person.sees_an_answer();
    person.leaves();

    let mut person = Person::sit_down(&folder, SHORT);
    person.types(&format!("/load {file}"));
    person.sees(" goes on");
    person.types("and?");
    assert_eq!(person.sees_an_answer(), second);
    assert!(second < first, "{second} of {first}");
    // What was taken back is not kept.
    person.types("/reset");
    person.sees("starts over");
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let state = selkie::SavedState::open(file.as_ref()).expect("a state");
    assert_eq!((state.positions, state.ids), (0, Some(vec![])));
    person.types("hello");
    person.sees_an_answer();
    person.leaves();
}

#[test]
fn messages_of_older_versions_go_on_and_states_of_other_models_do_not() {
    let folder = Folder::new();
    let old = r#"{"model": "squid", "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "you"}]}"#;
    let old = folder.write("old.json", old);
    let file = folder.path("talk.state");
    let mut person = Person::sit_down(&folder, SHORT);
    person.types(&format!("/load {old}"));
    person.sees("warning: it was held with squid");
    person.types("and?");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    assert_eq!(roles(&saved(&file)), ["user", "assistant", "user", "assistant"]);
    person.leaves();

    // The same weights with another template: another model.
    let other = format!("{TEMPLATE} ");
    let mut person = Person::sit_down_with(&folder, &other, SHORT);
    person.types(&format!("/load {file}"));
    person.sees("was saved by model ");
    person.sees("its state is of no use here");
    person.types("hello");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    assert_eq!(roles(&saved(&file)), ["user", "assistant"]);
    person.leaves();
}

#[test]
fn the_same_conversation_gives_the_same_answer_again_and_another_when_asked() {
    let folder = Folder::new();
    let flags = ["-n", "12", "--temperature", "2", "--top-k", "0", "--seed", "3", "--logit-bias", "1=-1000"];
    let file = folder.path("talk.json");
    let mut person = Person::sit_down(&folder, &flags);
    person.types("/regenerate");
    person.sees("selkie: nothing has been asked yet");
    person.types("hello");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let first = saved(&file);
    person.types("/regenerate");
    person.sees_an_answer();
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let second = saved(&file);
    assert_eq!((roles(&second), &second[0]), (roles(&first), &first[0]));
    assert_ne!(second[1], first[1]);
    person.leaves();
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_what_came() {
    let folder = Folder::new();
    let file = folder.path("talk.json");
    let mut person = Person::sit_down(&folder, ENDLESS);
    person.types("hello");
    std::thread::sleep(Duration::from_millis(700));
    person.presses(CTRL_C);
    person.sees("first after ");
    person.sees("stopped");
    person.sees("> ");
    person.types(&format!("/save {file}"));
    person.sees("the conversation is in ");
    let messages = saved(&file);
    assert_eq!(roles(&messages), ["user", "assistant"]);
    assert!(!messages[1].1.is_empty());
    person.leaves();
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves() {
    let folder = Folder::new();
    let mut person = Person::sit_down(&folder, SHORT);
    person.presses("never asked");
    person.sees("never asked");
    person.presses(CTRL_C);
    person.sees("> ");
    // Something was typed in between: not twice in a row.
    person.presses("nor this");
    person.sees("nor this");
    person.presses(CTRL_C);
    person.sees("> ");
    person.types("/reset");
    person.sees("starts over");
    person.sees("> ");
    person.presses(CTRL_C);
    person.sees("Ctrl-C again, or Ctrl-D, leaves");
    person.presses(CTRL_C);
    person.ends();
}

#[test]
fn several_lines_are_one_text() {
    let folder = Folder::new();
    let file = folder.path("talk.json");
    let mut person = Person::sit_down(&folder, SHORT);
    for (keys, said) in [
        ("first\\\rsecond\r", "first\nsecond"),
        ("third\x1b\rfourth\r", "third\nfourth"),
        ("\x1b[200~a \\\rb\r/reset\x1b[201~\r", "a \\\nb\n/reset"),
        (" /reset\r", "/reset"),
    ] {
        person.presses(keys);
        person.sees_an_answer();
        person.types(&format!("/save {file}"));
        person.sees("the conversation is in ");
        let messages = saved(&file);
        assert_eq!(messages[messages.len() - 2].1, said);
    }
    person.leaves();
}

#[test]
fn the_history_lasts() {
    let folder = Folder::new();
    let mut person = Person::sit_down(&folder, SHORT);
    person.types("a question of yesterday");
    person.sees_an_answer();
    person.leaves();
    let mut person = Person::sit_down(&folder, SHORT);
    // Arrow up.
    person.presses("\x1b[A");
    person.sees("a question of yesterday");
    person.presses("\r");
    person.sees_an_answer();
    person.leaves();
    let history = folder.path("home/history");
    assert!(fs::read_to_string(history).expect("a history").contains("a question of yesterday"));
}

#[test]
fn what_goes_wrong_is_said_and_the_conversation_goes_on() {
    let folder = Folder::new();
    let notes = folder.write("notes.txt", "mine");
    let other = folder.write("other.json", r#"{"model": "squid", "messages": [{"role": "user", "content": "x"}]}"#);
    let mut person = Person::sit_down(&folder, &[SHORT, &["--context", "48"]].concat());
    for (typed, said) in [
        ("/sing".to_owned(), "selkie: there is no /sing, only /help, "),
        ("/load".to_owned(), "selkie: /load needs a FILE"),
        (format!("/load {}", folder.path("nowhere.json")), "nowhere.json: No such file"),
        (format!("/load {notes}"), "notes.txt: expected"),
        (format!("/save {notes}"), "is there, and no conversation"),
        (format!("/save {}", folder.path("no/talk.json")), "No such file"),
        ("x".repeat(100), "but the context holds 48; /reset starts over, --context N makes room"),
        (format!("/load {other}"), "warning: it was held with squid"),
        ("/help".to_owned(), "/system TEXT"),
    ] {
        person.types(&typed);
        person.sees(said);
    }
    person.types("/reset");
    person.sees("starts over");
    person.types("hello");
    person.sees_an_answer();
    assert_eq!(fs::read_to_string(notes).expect("there"), "mine");
    person.types("/exit");
    person.ends();
}

#[test]
fn a_model_cannot_drive_the_terminal() {
    let folder = Folder::new();
    // The token that is the escape character is always chosen.
    let made = common::json(&["tokenize", &common::fixture("hf/llama-gqa/model.gguf"), "\x1b", "--json"]);
    let bias = format!("{}=1000", made["ids"][0]);
    let mut person = Person::sit_down(&folder, &["-n", "4", "--temperature", "0", "--logit-bias", &bias]);
    person.types("hello");
    let before = person.sees(" prompt tokens at ");
    assert!(!before.contains("\x1b\x1b"), "{before:?}");
    person.leaves();
}
