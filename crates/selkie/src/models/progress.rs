//! How a long job tells what it does.

/// What [`fetch`](super::fetch()) reports to, and asks whether to stop. The library prints nothing itself.
pub trait Progress {
    /// A transfer of `total` bytes starts (`None`: nobody says how many). One [`finish`](Progress::finish) belongs to it.
    /// A transfer that must start over is finished and begun again.
    fn begin(&mut self, what: &str, total: Option<u64>) {
        let _ = (what, total);
    }
    /// `bytes` more are here. Bytes which an earlier, broken transfer has left are counted too.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }
    /// One line worth telling: a source that was given up, a transfer that goes on after a break.
    fn note(&mut self, line: &str) {
        let _ = line;
    }
    /// The transfer that [`begin`](Progress::begin) has announced is over, well or badly.
    fn finish(&mut self) {}
    /// Whether to stop. Asked several times a second.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Hears everything, says nothing, never cancels.
#[derive(Debug, Default, Clone, Copy)]
pub struct Quiet;

impl Progress for Quiet {}
