//! What the terminal is told, and what it tells us.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Warnings of the libraries go to standard error as single lines; `SELKIE_LOG` filters them.
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SELKIE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
}

/// From now on Ctrl-C sets a flag instead of ending the program.
pub fn catch_interrupts() {
    // Only a second call fails, and then the first one's handler is there.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
}

/// Whether Ctrl-C was pressed since the last [`clear_interrupt`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Forgets that Ctrl-C was pressed.
pub fn clear_interrupt() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Whether a person watches the result come: both streams are a terminal which can move its cursor.
pub fn is_watched() -> bool {
    let can_move = env::var_os("TERM").is_none_or(|term| term != "dumb");
    io::stdout().is_terminal() && io::stderr().is_terminal() && can_move
}

fn has_colours() -> bool {
    is_watched() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A line on standard error, where results do not go. Nobody is told if it cannot be written.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A note that does not push itself forward: dim where there are colours.
pub fn dim(line: &str) {
    if has_colours() { note(format_args!("\x1b[2m{line}\x1b[0m")) } else { note(line) }
}

/// Writes a line of a result.
///
/// # Errors
/// Where it cannot be written; `println!` would panic when the reader has gone.
pub fn print_line(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Writes a result, and ends its line where a person reads it.
///
/// # Errors
/// Where it cannot be written.
pub fn print_exactly(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    if io::stdout().is_terminal() && !bytes.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Whether writing failed because the reader has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}
