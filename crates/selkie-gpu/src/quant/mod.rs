//! Block formats on the device: how rows lie there, how a file's rows become such rows, and (in the WGSL files beside, one
//! a format) how kernels read them.
//!
//! A matrix is row after row. A row of a block format is a few planes, one after the other, each with the same kind of
//! field for all groups of 32 values: quants first, scales last. What shares a group is thus aligned, which it is not in
//! the 34 or 210 bytes of a file's block, and neighbouring threads read neighbouring words. No format takes more than a
//! few hundredths more room than in its file; the WGSL files say what their planes are.

mod blocks;
mod fields;
mod k;

use std::fmt;

use selkie_formats::DType;

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
        /// Whether values are looked up in grids.
        grids: bool,
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
        matches!(self.0.kind, Kind::Blocks { grids: true, .. })
    }

    /// Words (u32) of a row of `cols` values on the device, a multiple of 4. `cols` is a multiple of the block's length.
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

    /// The names that a kernel's text is made with: `FORMAT`, and `FORMAT_FLOAT` or `FORMAT_GRIDS` where they hold.
    pub fn defines(self) -> Defines {
        Defines::new()
            .set("FORMAT", self.name())
            .flag("FORMAT_FLOAT", self.is_float())
            .flag("FORMAT_GRIDS", self.needs_grids())
    }
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
    ($dtype:ident, [$(($words:literal, $groups:literal)),*], $repack:path $(, grids: $grids:literal)?) => {
        Layout {
            dtype: DType::$dtype,
            kind: Kind::Blocks {
                planes: &[$(Plane { words: $words, groups: $groups }),*],
                grids: false $(|| $grids)?,
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
    blocks!(Q8_0, [(8, 1), (1, 2)], blocks::q8_0),
    blocks!(Q4_K, [(4, 1), (1, 2), (1, 8)], k::q4_k),
    blocks!(Q5_K, [(4, 1), (1, 1), (1, 2), (1, 8)], k::q5_k),
    blocks!(Q6_K, [(4, 1), (2, 1), (1, 2), (1, 16)], k::q6_k),
];
