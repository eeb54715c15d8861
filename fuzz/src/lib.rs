//! What the targets share.

use std::{pin::pin, rc::Rc, task};

use selkie_formats::{ByteSource, Checkpoint, MemorySource};

/// Runs a future over sources in memory, which are always ready.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut task::Context::from_waker(task::Waker::noop())) {
        task::Poll::Ready(value) => value,
        task::Poll::Pending => panic!("a source in memory made us wait"),
    }
}

/// A source over `data`.
pub fn source(data: &[u8]) -> Rc<dyn ByteSource> {
    Rc::new(MemorySource::new("fuzz", data.to_vec()))
}

/// Reads and decodes every tensor.
pub fn read_all(checkpoint: &Checkpoint) {
    for info in checkpoint.tensors() {
        let tensor = now(checkpoint.read(info)).expect("a tensor inside its file");
        let _ = tensor.to_f32();
        assert!(info.elements() <= usize::MAX / 2);
    }
}
