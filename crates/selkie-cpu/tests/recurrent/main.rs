//! Recurrent ops on every instruction set: against what others computed, against their definitions in f64, and the
//! promises of a state.

#[path = "../common/mod.rs"]
mod common;
mod conv;
mod cssd;
mod delta;
mod mamba3;
mod scan;
mod ssd;
mod support;
