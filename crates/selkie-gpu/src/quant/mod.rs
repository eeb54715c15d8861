//! Block formats on the device: how rows lie there, how a file's rows become such rows, and (in the WGSL files beside,
//! one a format) how kernels read them.
//!
//! A matrix is row after row. A row of a block format is a few planes, one after the other, each with the same kind of
//! field for all groups of 32 values: quants first, scales last. What shares a group is thus aligned, which it is not
//! in the 34 or 210 bytes of a file's block, and neighbouring threads read neighbouring words. No format takes more
//! than a few hundredths more room than in its file; the WGSL files say what their planes are.

mod blocks;
mod few_bits;
mod fields;
mod grids;
mod iq;
mod k;
mod planes;

use std::fmt;

use selkie_formats::DType;

use self::grids::Grid;
use crate::Defines;

/// Values in a group: what a kernel unpacks at once.
pub const GROUP: usize = 32;

/// How matrices of one type of values lie on the device.
#[derive(Clone, Copy)]
pub struct Format(&'static Layout);

/// One row of the table of formats.
struct Layout {
    dtype: DType,
    kind: Kind,
}

enum Kind {
    /// Plain numbers.
    Float,
    /// Blocks.
    Blocks {
        planes: &'static [Plane],
        /// The grid that values are looked up in.
        grid: Option<Grid>,
        /// Writes a row's planes, all of which are zeros, from the blocks of a file's row.
        repack: fn(&[u8], Planes<'_>),
    },
}

/// How many words a plane takes: `words` for every `groups` groups.
struct Plane {
    words: usize,
    groups: usize,
}

impl Plane {
    fn words(&self, groups: usize) -> usize {
        (groups * self.words).div_ceil(self.groups)
    }
}

/// At most so many planes a row.
const MOST_PLANES: usize = 5;

/// The bytes of a row's planes in their order; empty behind the last.
type Planes<'a> = [&'a mut [u8]; MOST_PLANES];

/// Values that a row of plain numbers is filled up to a multiple of, so that it is read without looking at its end.
const FLOATS: usize = 8;

impl Format {
    /// The format of matrices of `dtype`; `None` where they do not go on the device as they are.
    pub fn of(dtype: DType) -> Option<Self> {
        FORMATS.iter().find(|layout| layout.dtype == dtype).map(Self)
    }

    /// Every format.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(Self)
    }

    /// The type of the values.
    pub fn dtype(self) -> DType {
        self.0.dtype
    }

    /// The type's name, which is the stem of the WGSL file.
    pub fn name(self) -> &'static str {
        self.0.dtype.name()
    }

    /// Whether this is a format of plain numbers, whose WGSL file defines `quad` and not `group`.
    pub fn is_float(self) -> bool {
        matches!(self.0.kind, Kind::Float)
    }

    /// Whether kernels need [`grids`].
    pub fn needs_grids(self) -> bool {
        matches!(self.0.kind, Kind::Blocks { grid: Some(_), .. })
    }

    /// Words (u32) of a row of `cols` values on the device, a multiple of 4. `cols` is a multiple of the block's
    /// length.
    pub fn row_words(self, cols: usize) -> usize {
        match &self.0.kind {
            Kind::Float => cols.next_multiple_of(FLOATS) * self.0.dtype.block_bytes() / 4,
            Kind::Blocks { planes, .. } => {
                planes.iter().map(|plane| plane.words(cols / GROUP)).sum::<usize>().next_multiple_of(4)
            }
        }
    }

    /// Writes one row for the device from the bytes of one row of a file.
    ///
    /// # Panics
    /// Where `file_row` is not a row of `cols` values, or `out` is not [`row_words`](Self::row_words) long.
    pub fn repack_row(self, file_row: &[u8], cols: usize, out: &mut [u32]) {
        assert_eq!(Some(file_row.len()), self.0.dtype.row_bytes(cols), "bytes of {cols} values of {}", self.name());
        assert_eq!(out.len(), self.row_words(cols), "words of {cols} values of {}", self.name());
        let out: &mut [u8] = bytemuck::cast_slice_mut(out);
        match &self.0.kind {
            Kind::Float => {
                let (values, padding) = out.split_at_mut(file_row.len());
                values.copy_from_slice(file_row);
                padding.fill(0);
            }
            Kind::Blocks { planes, repack, .. } => {
                out.fill(0);
                let mut rest = out;
                let mut split = Planes::default();
                for (bytes, plane) in split.iter_mut().zip(*planes) {
                    (*bytes, rest) = rest.split_at_mut(4 * plane.words(cols / GROUP));
                }
                repack(file_row, split);
            }
        }
    }

    /// The names that a kernel's text is made with: `FORMAT`; where they hold, `FORMAT_FLOAT` or `FORMAT_GRIDS`; and
    /// with the latter `GRID`, where the format's grid begins among all of them.
    pub fn defines(self) -> Defines {
        let defines = Defines::new().set("FORMAT", self.name());
        match self.0.kind {
            Kind::Float => defines.flag("FORMAT_FLOAT", true),
            Kind::Blocks { grid: None, .. } => defines,
            Kind::Blocks { grid: Some(grid), .. } => {
                defines.flag("FORMAT_GRIDS", true).set("GRID", format_args!("{}u", grid.offset()))
            }
        }
    }
}

/// The buffer `grids` of every format that [needs](Format::needs_grids) it.
pub fn grids() -> Vec<u32> {
    grids::words()
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.0.dtype == other.0.dtype
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format({})", self.name())
    }
}

const fn float(dtype: DType) -> Layout {
    Layout { dtype, kind: Kind::Float }
}

/// `planes`: (words, groups) each.
macro_rules! blocks {
    ($dtype:ident, [$(($words:literal, $groups:literal)),*], $repack:path) => {
        blocks!($dtype, [$(($words, $groups)),*], $repack, None)
    };
    ($dtype:ident, [$(($words:literal, $groups:literal)),*], $repack:path, $grid:expr) => {
        Layout {
            dtype: DType::$dtype,
            kind: Kind::Blocks {
                planes: &[$(Plane { words: $words, groups: $groups }),*],
                grid: $grid,
                repack: $repack,
            },
        }
    };
}

static FORMATS: &[Layout] = &[
    float(DType::F32),
    float(DType::F16),
    float(DType::BF16),
    blocks!(Q4_0, [(4, 1), (1, 2)], blocks::q4_0),
    blocks!(Q4_1, [(4, 1), (1, 1)], blocks::q4_1),
    blocks!(Q5_0, [(4, 1), (1, 1), (1, 2)], blocks::q5_0),
    blocks!(Q5_1, [(4, 1), (1, 1), (1, 1)], blocks::q5_1),
    blocks!(Q8_0, [(8, 1), (1, 2)], blocks::q8_0),
    blocks!(Q2_K, [(2, 1), (1, 2), (1, 8)], k::q2_k),
    blocks!(Q3_K, [(2, 1), (1, 1), (1, 2), (1, 16)], k::q3_k),
    blocks!(Q4_K, [(4, 1), (1, 2), (1, 8)], k::q4_k),
    blocks!(Q5_K, [(4, 1), (1, 1), (1, 2), (1, 8)], k::q5_k),
    blocks!(Q6_K, [(4, 1), (2, 1), (1, 2), (1, 16)], k::q6_k),
    blocks!(IQ1_S, [(1, 1), (1, 2), (1, 16)], iq::iq1_s, Some(Grid::Iq1)),
    blocks!(IQ1_M, [(1, 1), (1, 2), (1, 4), (1, 16)], iq::iq1_m, Some(Grid::Iq1)),
    blocks!(IQ2_XXS, [(2, 1), (1, 16)], iq::iq2_xxs, Some(Grid::Iq2Xxs)),
    blocks!(IQ2_XS, [(2, 1), (1, 4), (1, 16)], iq::iq2_xs, Some(Grid::Iq2Xs)),
    blocks!(IQ2_S, [(2, 1), (1, 2), (1, 16)], iq::iq2_s, Some(Grid::Iq2S)),
    blocks!(IQ3_XXS, [(3, 1), (1, 16)], iq::iq3_xxs, Some(Grid::Iq3Xxs)),
    blocks!(IQ3_S, [(3, 1), (1, 4), (1, 8), (1, 16)], iq::iq3_s, Some(Grid::Iq3S)),
    blocks!(IQ4_NL, [(4, 1), (1, 2)], planes::iq4_nl),
    blocks!(IQ4_XS, [(4, 1), (1, 4), (1, 16)], planes::iq4_xs),
    blocks!(TQ1_0, [(13, 8), (1, 16)], few_bits::tq1_0),
    blocks!(TQ2_0, [(2, 1), (1, 16)], few_bits::tq2_0),
    blocks!(MXFP4, [(4, 1), (1, 4)], planes::mxfp4),
    blocks!(NVFP4, [(4, 1), (1, 2)], planes::nvfp4),
    blocks!(Q1_0, [(1, 1), (1, 8)], few_bits::q1_0),
    blocks!(Q2_0, [(2, 1), (1, 4)], few_bits::q2_0),
];
