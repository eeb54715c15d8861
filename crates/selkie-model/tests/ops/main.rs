//! Every reference op and its gradient: against the golden files, and against finite differences.

mod differences;
mod differences_recurrent;
mod golden;
mod golden_delta;
mod golden_mamba3;
mod golden_rope;
mod golden_scan;
mod golden_ssd;
mod mixture;
mod pieces;
mod routing;
mod support;
