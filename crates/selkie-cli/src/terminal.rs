//! What the terminal is told, and what it tells us.

use std::{
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
        .with_ansi(io::stderr().is_terminal())
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

/// A dim line on standard error, where a person watches it.
pub fn dim(line: &str) {
    if io::stderr().is_terminal() {
        eprintln!("\x1b[2m{line}\x1b[0m");
    } else {
        eprintln!("{line}");
    }
}

/// Writes a result, and ends its line where a person reads it.
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
