//! What a model needs of a device's memory, told before anything is loaded.

use std::fmt;

use crate::{Error, Gpu, Result};

/// What a model needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Memory {
    /// Its weights.
    pub weights: u64,
    /// One state, with the older copies that it keeps to go back to.
    pub state: u64,
    /// The positions of that state.
    pub positions: usize,
    /// Values between dispatches.
    pub values: u64,
    /// What passes between host and device.
    pub staging: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.state + self.values + self.staging
    }

    /// Refuses what cannot fit beside what is there already, where the device tells how much memory it has.
    pub(crate) fn check(&self, gpu: &Gpu) -> Result<()> {
        let taken = gpu.counts().bytes();
        match gpu.memory() {
            Some(there) if self.total().saturating_add(taken) > there => Err(self.refused(gpu)),
            _ => Ok(()),
        }
    }

    /// The error where it does not fit.
    pub(crate) fn refused(&self, gpu: &Gpu) -> Error {
        Error::NoRoom { needed: *self, device: gpu.name().into(), there: gpu.memory(), taken: gpu.counts().bytes() }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { weights, state, positions, values, staging } = *self;
        write!(f, "{} (weights {}, ", Size(self.total()), Size(weights))?;
        write!(f, "a state for {positions} positions {}, ", Size(state))?;
        write!(f, "values {}, staging {})", Size(values), Size(staging))
    }
}

/// Bytes, for people.
pub(crate) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 1_000_000_000.. => write!(f, "{:.1} GB", bytes as f64 / 1e9),
            bytes => write!(f, "{} MB", bytes.div_ceil(1_000_000)),
        }
    }
}
