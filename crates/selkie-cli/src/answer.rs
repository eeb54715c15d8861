//! An answer on its way to standard output.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, StdoutLock, Write},
    ops::ControlFlow,
};

use selkie::Event;

use crate::{reading::Reading, terminal};

/// Prints text as it comes, and tells meanwhile how far reading the prompt is. Ctrl-C ends it.
pub struct Answer {
    out: StdoutLock<'static>,
    failed: Option<io::Error>,
    reading: Option<Reading>,
    shown: bool,
    line_open: bool,
}

impl Answer {
    /// An answer whose text is printed where it is `shown`.
    pub fn new(shown: bool) -> Self {
        terminal::clear_interrupt();
        let reading = terminal::is_watched().then(Reading::new);
        Self { out: io::stdout().lock(), failed: None, reading, shown, line_open: false }
    }

    /// Takes the next event of a generation.
    pub fn hear(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Prompt { read, of } => self.reading.iter().for_each(|reading| reading.at(read, of)),
            Event::Text(text) => {
                self.reading = None;
                if self.shown && !text.is_empty() {
                    self.line_open = !text.ends_with('\n');
                    self.failed = self.write(text).err();
                }
            }
        }
        if self.failed.is_some() || terminal::interrupted() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let text = if self.out.is_terminal() { harmless(text) } else { Cow::Borrowed(text) };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Ends the last line.
    ///
    /// # Errors
    /// What went wrong since the beginning.
    pub fn end(mut self) -> io::Result<()> {
        self.reading = None;
        match self.failed {
            Some(error) => Err(error),
            None if self.line_open => self.out.write_all(b"\n").and_then(|()| self.out.flush()),
            None => Ok(()),
        }
    }
}

/// The text as a terminal may have it: a model's words shall not move the cursor or set colours.
fn harmless(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(acts) { Cow::Owned(text.replace(acts, "")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_lose_their_escape() {
        assert_eq!(harmless("a\tb\n"), "a\tb\n");
        assert_eq!(harmless("\u{1b}[2Jgone\u{9b}1m\r"), "[2Jgone1m");
    }
}
