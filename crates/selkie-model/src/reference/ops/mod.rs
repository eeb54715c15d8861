//! Every op by its definition, in plain loops. Rows lie one after another: `[rows, width]`.

mod attention;
mod elementwise;
mod linear;
mod mixture;
mod norm;
mod rope;

pub use attention::{AttentionShape, attention};
pub use elementwise::{activate, add, glu, scale, soft_cap};
pub use linear::{embed, linear, take_rows};
pub use mixture::{Choice, mixture, route};
pub use norm::rms_norm;
pub use rope::rope;

use super::Real;

/// f32 values as `T`.
pub fn widen<T: Real>(values: &[f32]) -> Vec<T> {
    values.iter().map(|&v| T::from_f32(v)).collect()
}
