//! What a kernel refuses.

/// The result of preparing or running a kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a kernel did not run. Each names the operand and the sizes wanted and found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operand has another size than the operation needs.
    #[error("{operand}: {wanted} {unit} wanted, {found} found")]
    Size {
        /// Which operand.
        operand: &'static str,
        /// What is counted.
        unit: &'static str,
        /// How many the operation needs.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// A row of a weight does not fill whole blocks of its type.
    #[error("a row of {columns} values does not divide into blocks of {dtype}")]
    Row {
        /// Values in a row.
        columns: usize,
        /// The type of the blocks.
        dtype: selkie_formats::DType,
    },
    /// Weights of this type cannot be multiplied with.
    #[error("{0} is not a type of weights")]
    DType(selkie_formats::DType),
    /// A parameter lies outside of what the operation means.
    #[error("{0}")]
    Parameter(&'static str),
}

/// Checks one size; the error names the operand.
pub(crate) fn expect(operand: &'static str, unit: &'static str, wanted: usize, found: usize) -> Result<()> {
    if wanted == found { Ok(()) } else { Err(Error::Size { operand, unit, wanted, found }) }
}
