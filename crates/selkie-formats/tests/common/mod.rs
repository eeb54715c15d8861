//! What the tests share: the fixtures, and a runner for futures that never wait.

#![allow(dead_code, reason = "not every test uses everything")]

use std::{path::PathBuf, pin::pin, rc::Rc, task};

use selkie_formats::{ByteSource, MemorySource};

/// Runs a future over sources in memory, which are always ready.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut task::Context::from_waker(task::Waker::noop())) {
        task::Poll::Ready(value) => value,
        task::Poll::Pending => panic!("a source in memory made us wait"),
    }
}

/// The bytes of a file in the repository's `fixtures/`.
pub fn fixture(path: &str) -> Vec<u8> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path);
    std::fs::read(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// A source over bytes.
pub fn source(name: &str, bytes: Vec<u8>) -> Rc<dyn ByteSource> {
    Rc::new(MemorySource::new(name, bytes))
}
