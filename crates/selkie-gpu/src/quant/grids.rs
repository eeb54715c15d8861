//! The tables that the IQ formats look their values up in, as one buffer.

use selkie_formats::quant::grids;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// Of `IQ1_S` and `IQ1_M`.
    Iq1,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
}

impl Grid {
    const ALL: [Self; 6] = [Self::Iq1, Self::Iq2Xxs, Self::Iq2Xs, Self::Iq2S, Self::Iq3Xxs, Self::Iq3S];

    /// A word or two a row: bytes in order; of the ternary rows, one more than the values in nibbles, the first four
    /// below.
    fn words(self) -> Vec<u32> {
        match self {
            Self::Iq1 => grids::IQ1_S.iter().map(ternary).collect(),
            Self::Iq2Xxs => grids::IQ2_XXS.as_flattened().chunks_exact(4).map(word).collect(),
            Self::Iq2Xs => grids::IQ2_XS.as_flattened().chunks_exact(4).map(word).collect(),
            Self::Iq2S => grids::IQ2_S.as_flattened().chunks_exact(4).map(word).collect(),
            Self::Iq3Xxs => grids::IQ3_XXS.as_flattened().chunks_exact(4).map(word).collect(),
            Self::Iq3S => grids::IQ3_S.as_flattened().chunks_exact(4).map(word).collect(),
        }
    }

    /// Where it begins in [`words`].
    pub(super) fn offset(self) -> usize {
        Self::ALL.iter().take_while(|&&grid| grid != self).map(|grid| grid.words().len()).sum()
    }
}

/// Every table, one after the other.
pub(super) fn words() -> Vec<u32> {
    Grid::ALL.iter().flat_map(|grid| grid.words()).collect()
}

fn word(values: &[i8]) -> u32 {
    values.iter().rev().fold(0, |word, &value| word << 8 | u32::from(value as u8))
}

fn ternary(values: &[i8; 8]) -> u32 {
    let place = |at: usize| 8 * (at % 4) + 4 * (at / 4);
    values.iter().enumerate().fold(0, |word, (at, &value)| word | ((value + 1) as u32) << place(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_where_tables_begin() {
        let all = words();
        for grid in Grid::ALL {
            assert_eq!(all[grid.offset()..][..grid.words().len()], grid.words(), "{grid:?}");
        }
        assert_eq!(all.len(), 2048 + 2 * (256 + 512 + 1024) + 256 + 512);
    }
}
