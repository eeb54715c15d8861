//! A bar for downloads; quiet lines where nobody watches.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use selkie::models::Progress;

use crate::terminal;

/// Shows progress on standard error.
pub struct Bar {
    bar: Option<ProgressBar>,
    watched: bool,
}

impl Bar {
    /// A bar that appears with the first transfer.
    pub fn new() -> Self {
        Self { bar: None, watched: std::io::stderr().is_terminal() }
    }
}

/// A bar over `total` bytes or steps on standard error; hidden where that is no terminal.
pub fn bar(total: Option<u64>, template: &str) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸ "));
    }
    bar
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        if !self.watched {
            terminal::note(format_args!("fetching {what}"));
            return;
        }
        let template = match total {
            Some(_) => "{msg} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{msg} {spinner} {bytes} {bytes_per_sec}",
        };
        let bar = bar(total, template);
        bar.set_message(what.to_owned());
        self.bar = Some(bar);
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.iter().for_each(|bar| bar.inc(bytes));
    }

    fn note(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| terminal::note(line)),
            None => terminal::note(line),
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn cancelled(&self) -> bool {
        terminal::interrupted()
    }
}
