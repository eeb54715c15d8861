//! Templates run apart from their caller, since what they are made of comes from a file.

#[cfg(not(target_family = "wasm"))]
use crate::error::Error;
use crate::error::Result;

/// Stack for what a template nests: parsing and comparing go as deep as it does. Memory that is not used is not taken.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 512 << 20;

/// How long a template may take. Fuel ends loops sooner; this ends what fuel does not count, such as lists that double.
#[cfg(not(target_family = "wasm"))]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs `work` on a thread of its own, with much stack and an end.
///
/// # Errors
/// What `work` gives, and where it took too long or died. A thread that took too long is left to itself.
#[cfg(not(target_family = "wasm"))]
pub(super) fn run<T: Send + 'static>(name: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    use std::{sync::mpsc, thread};

    let error = |what: &str| Error::Template { name: name.to_owned(), line: None, what: what.to_owned() };
    let (done, result) = mpsc::channel();
    let thread = thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
    // Nobody may be there to hear the result any more.
    thread.spawn(move || drop(done.send(work()))).map_err(|_| error("there is no thread for it"))?;
    match result.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(error("it runs for too long")),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(error("it cannot be rendered")),
    }
}

/// In a browser there are no threads, and its own limits hold.
#[cfg(target_family = "wasm")]
pub(super) fn run<T: Send + 'static>(_name: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    work()
}
