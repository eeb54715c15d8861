//! Every reference op and its gradient: against the golden files, and against finite differences.

mod differences;
mod golden;
mod golden_rope;
mod golden_scan;
mod mixture;
mod support;
