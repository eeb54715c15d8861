//! Models, independent of what runs them.
//!
//! A model is a **schedule of layers** ([`ModelSpec`]); a [family](families) turns a checkpoint's metadata and tensor
//! names into one. From the spec, one builder per mixer appends named operations to a [`Plan`], a straight list which
//! every executor reads: the [reference](mod@reference) here, the CPU and GPU executors in crates of their own. How a token
//! is chosen from logits is here too ([sampling]), since executors may do that themselves.

pub mod error;
pub mod executor;
pub mod families;
pub mod plan;
pub mod profile;
pub mod reference;
pub mod rope;
pub mod sampling;
pub mod self_test;
pub mod spec;
pub mod watch;
pub mod weights;

pub use error::{Error, Result};
pub use executor::{Batch, Choice, Executor, MAX_REWIND, Output, Sequence, Snapshot, State, StateData, Want};
pub use plan::Plan;
pub use profile::{OpTime, Profile};
pub use sampling::SamplingParams;
pub use spec::ModelSpec;
pub use watch::{OnLoad, Stage, Watch};
pub use weights::{LoadedWeight, LoadedWeights, WeightId, WeightSource, Weights};
