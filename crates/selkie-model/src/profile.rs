//! Where a forward pass spends its time, by kind of op.

use std::time::Duration;

use web_time::Instant;

/// All runs of one kind of op since a profile began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// The kind, as [`Op::name`](crate::plan::Op::name) has it.
    pub op: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// How long these took together.
    pub time: Duration,
}

/// A sum a kind of op; measures nothing until it is switched on, which needs a system with a clock.
#[derive(Debug, Default)]
pub struct Profile {
    on: bool,
    times: Vec<OpTime>,
}

impl Profile {
    /// Begins anew, or stops measuring.
    pub fn switch(&mut self, on: bool) {
        *self = Self { on, times: vec![] };
    }

    /// Before an op. Reading the clock costs time too, so `None` where nobody asked.
    pub fn start(&self) -> Option<Instant> {
        self.on.then(Instant::now)
    }

    /// After the op that began at `started`.
    pub fn stop(&mut self, op: &'static str, started: Option<Instant>) {
        let Some(time) = started.map(|started| started.elapsed()) else { return };
        match self.times.iter_mut().find(|kind| kind.op == op) {
            Some(kind) => {
                kind.runs += 1;
                kind.time += time;
            }
            None => self.times.push(OpTime { op, runs: 1, time }),
        }
    }

    /// The sums so far, in the order of the plan, which begin anew.
    pub fn take(&mut self) -> Vec<OpTime> {
        std::mem::take(&mut self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_kind_once_it_is_on() {
        let mut profile = Profile::default();
        let started = profile.start();
        profile.stop("linear", started);
        assert_eq!(profile.take(), []);
        profile.switch(true);
        for op in ["embed", "linear", "rope", "linear"] {
            let started = profile.start();
            profile.stop(op, started);
        }
        let runs: Vec<_> = profile.take().iter().map(|kind| (kind.op, kind.runs)).collect();
        assert_eq!(runs, [("embed", 1), ("linear", 2), ("rope", 1)]);
        assert_eq!(profile.take(), []);
    }
}
