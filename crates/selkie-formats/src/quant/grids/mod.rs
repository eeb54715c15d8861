//! Tables that the IQ formats look their values up in.
//!
//! They are part of the formats: a file stores row numbers only. In the source the rows are packed to 12 or 16 bits and
//! unpacked by the compiler.

mod iq1;
mod iq2;
mod iq3;

pub use iq1::IQ1_S;
pub use iq2::{IQ2_S, IQ2_XS, IQ2_XXS};
pub use iq3::{IQ3_S, IQ3_XXS};

/// `IQ4_NL` and `IQ4_XS`: what a 4-bit index means.
pub static IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `MXFP4` and `NVFP4`: what a 4-bit float (sign, 2 bits exponent, 1 bit mantissa) means, doubled to be whole.
pub static FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The eight signs (bit set: negative) that the 7-bit number `index` stands for: the eighth makes their count even.
pub const fn even_signs(index: u8) -> u8 {
    let low = index & 0x7f;
    low | (((low.count_ones() & 1) as u8) << 7)
}

/// Unpacks rows of `LEN` fields of `bits` bits each, the first in the lowest bits, through `levels`.
const fn unpack<const LEN: usize, const ROWS: usize>(
    packed: &[u16; ROWS],
    levels: &[i8],
    bits: usize,
) -> [[i8; LEN]; ROWS] {
    let mut grid = [[0; LEN]; ROWS];
    let mut row = 0;
    while row < ROWS {
        let mut at = 0;
        while at < LEN {
            grid[row][at] = levels[(packed[row] >> (bits * at)) as usize & ((1 << bits) - 1)];
            at += 1;
        }
        row += 1;
    }
    grid
}
