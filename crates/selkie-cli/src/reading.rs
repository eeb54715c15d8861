//! A line that tells how far reading a prompt is.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Who answers sooner needs no such line.
const PATIENCE: Duration = Duration::from_millis(500);

/// Between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

const PICTURES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// A line on standard error that appears when reading takes long, and is gone when this is dropped. It has a thread of
/// its own, since the prompt is read on the one that would draw.
pub struct Reading {
    counts: Arc<Counts>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    read: AtomicUsize,
    of: AtomicUsize,
}

impl Reading {
    /// Begins to wait.
    pub fn new() -> Self {
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("reading".into()).spawn({
            let counts = counts.clone();
            move || draw(&counts, &stopped)
        });
        // A machine without a thread to spare reads the prompt all the same.
        Self { counts, stop: Some(stop), thread: thread.ok() }
    }

    /// So many tokens are in.
    pub fn at(&self, read: usize, of: usize) {
        self.counts.of.store(of, Ordering::Relaxed);
        self.counts.read.store(read, Ordering::Relaxed);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only draws: that it failed is nobody's concern.
            let _ = thread.join();
        }
    }
}

fn draw(counts: &Counts, stopped: &mpsc::Receiver<()>) {
    let mut wait = PATIENCE;
    let mut picture = PICTURES.iter().cycle();
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = TICK;
        let (read, of) = (counts.read.load(Ordering::Relaxed), counts.of.load(Ordering::Relaxed));
        let far = if of > 0 { format!("{read} of {of} tokens") } else { String::new() };
        let picture = picture.next().unwrap_or(&' ');
        let _ = write!(io::stderr(), "\r{picture} reading… {far}\x1b[K");
    }
    if wait == TICK {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
