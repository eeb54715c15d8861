//! Recurrent layers: what a sequence leaves behind is a state of constant size.
//!
//! An op ([`CausalConv`](conv::CausalConv), [`SelectiveScan`](selective_scan::SelectiveScan), …) holds its weights in the
//! order that its kernel reads; a state belongs to one sequence, and knows how to go on and how to forget the last tokens.
//! Rows are those of one sequence; sequences of a batch are run one after another.

pub(crate) mod chunk;
pub(crate) mod conv;
pub(crate) mod cssd;
pub(crate) mod delta;
pub(crate) mod mamba3;
pub(crate) mod selective_scan;
pub(crate) mod ssd;
pub(crate) mod state;

use crate::error::{Error, Result, expect};

/// The most tokens that a state forgets at once.
pub const MAX_REWIND: usize = 32;

/// Rows of an input, of which each token has `width` values.
fn rows_of(operand: &'static str, x: &[f32], width: usize) -> Result<usize> {
    let rows = x.len().checked_div(width).unwrap_or(0);
    expect(operand, "values", rows * width, x.len())?;
    Ok(rows)
}

fn beyond_reach(n: usize, reach: usize) -> Error {
    Error::Size { operand: "rewind", unit: "tokens at most", wanted: reach, found: n }
}
