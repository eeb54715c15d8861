//! Watching a model being loaded, and stopping it.

use std::{fmt, ops::ControlFlow, rc::Rc};

use crate::{Error, Result};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Weights are read, or put on a device: bytes.
    Load,
    /// Kernels are made: rows of tables.
    Compile,
}

/// Who hears how far a load has come, of how much, and may end it with [`ControlFlow::Break`].
pub type OnLoad = dyn Fn(Stage, u64, u64) -> ControlFlow<()>;

/// Whoever watches, if anybody.
#[derive(Clone, Default)]
pub struct Watch(Option<Rc<OnLoad>>);

impl Watch {
    /// Watched by `on_load`.
    pub fn new(on_load: impl Fn(Stage, u64, u64) -> ControlFlow<()> + 'static) -> Self {
        Self(Some(Rc::new(on_load)))
    }

    /// Tells whoever watches.
    ///
    /// # Errors
    /// [`Error::Cancelled`] where they say so.
    pub fn tell(&self, stage: Stage, done: u64, of: u64) -> Result<()> {
        match self.0.as_ref().map(|on_load| on_load(stage, done, of)) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "watched" } else { "unwatched" })
    }
}
