//! What is typed: lines with a history.

use std::{
    fs,
    io::{self, IsTerminal},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyCode, KeyEvent,
    Modifiers, Movement, RepeatCount, error::ReadlineError, history::FileHistory,
};

use crate::terminal;

/// Entries that the history keeps.
const ENTRIES: usize = 1000;

/// An entry longer than this many bytes is a pasted text, which nobody looks for in a history.
const LONGEST: usize = 16 << 10;

/// The prompt where a person types.
pub struct Input {
    editor: Editor<(), FileHistory>,
    history: Option<PathBuf>,
    was_empty: Arc<AtomicBool>,
}

impl Input {
    /// A prompt whose history lies in `home`, Selkie's own folder; without one it lasts as long as the program.
    pub fn new(home: Option<PathBuf>) -> Result<Self> {
        // Where standard output is a file, it is for answers only: what is typed is then shown on the terminal itself.
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().max_history_size(ENTRIES)?.behavior(behavior).build();
        let mut editor: Editor<(), FileHistory> = Editor::with_config(config)?;
        let was_empty = Arc::new(AtomicBool::new(true));
        let ctrl_c = LookBeforeInterrupt { was_empty: was_empty.clone() };
        editor.bind_sequence(KeyEvent::ctrl('c'), EventHandler::Conditional(Box::new(ctrl_c)));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::NONE), EventHandler::Conditional(Box::new(Continue)));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = home.filter(|home| fs::create_dir_all(home).is_ok()).map(|home| home.join("history"));
        if let Some(path) = history.as_ref().filter(|path| path.is_file())
            && let Err(error) = editor.load_history(path)
        {
            tracing::warn!("{}: {error}", path.display());
        }
        Ok(Self { editor, history, was_empty })
    }

    /// The next text that is not empty; `None` where the person leaves: with Ctrl-D, or with Ctrl-C twice in a row.
    ///
    /// # Errors
    /// Where the terminal fails.
    pub fn read(&mut self) -> Result<Option<String>> {
        let mut interrupted = false;
        loop {
            match self.editor.readline("> ") {
                Ok(text) if text.trim().is_empty() => interrupted = false,
                Ok(text) => {
                    self.remember(&text);
                    return Ok(Some(text));
                }
                Err(ReadlineError::Interrupted) => {
                    let was_empty = self.was_empty.load(Ordering::Relaxed);
                    if interrupted && was_empty {
                        return Ok(None);
                    }
                    interrupted = true;
                    if was_empty {
                        terminal::dim("Ctrl-C again, or Ctrl-D, leaves");
                    }
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts a text into the history, on disk at once: another window may want it. A conversation goes on without.
    fn remember(&mut self, text: &str) {
        if text.len() > LONGEST || !self.editor.add_history_entry(text).unwrap_or(false) {
            return;
        }
        if let Some(path) = &self.history
            && let Err(error) = self.editor.append_history(path)
        {
            tracing::warn!("{}: {error}; the history is not kept", path.display());
            self.history = None;
        }
    }
}

/// Ctrl-C, which tells whether anything had been typed: the editor itself throws the line away untold.
struct LookBeforeInterrupt {
    was_empty: Arc<AtomicBool>,
}

impl ConditionalEventHandler for LookBeforeInterrupt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        self.was_empty.store(context.line().is_empty(), Ordering::Relaxed);
        Some(Cmd::Interrupt)
    }
}

/// Enter after a backslash at the very end puts a line break in its place. Backslashes inside a pasted text stay.
struct Continue;

impl ConditionalEventHandler for Continue {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let goes_on = context.pos() == context.line().len() && context.line().ends_with('\\');
        goes_on.then(|| Cmd::Replace(Movement::BackwardChar(1), Some("\n".to_owned())))
    }
}
