//! Keys and values of past positions.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::ops::Range;

use crate::{
    Isa,
    error::{Error, Result, expect},
    simd::{Kernel, Simd},
};

/// How a cache stores its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// As computed.
    F32,
    /// Rounded to IEEE half floats: half the memory, and half of what long contexts read.
    F16,
}

#[derive(Clone, Debug)]
enum Values {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

/// One side of a cache, `[heads, capacity, dim]`.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    values: Values,
    dim: usize,
}

/// The keys and values of one attention layer and one sequence. Clones are independent; memory is taken once, for
/// `capacity` positions, and again only by [`reserve`](Self::reserve).
#[derive(Clone, Debug)]
pub struct KvCache {
    heads: usize,
    capacity: usize,
    len: usize,
    pub(crate) k: Side,
    pub(crate) v: Side,
}

impl Side {
    fn new(dtype: CacheType, heads: usize, capacity: usize, dim: usize) -> Result<Self> {
        let too_large = Error::Parameter("a cache of more values than memory can hold");
        let len = heads.checked_mul(capacity).and_then(|n| n.checked_mul(dim)).ok_or(too_large)?;
        let values = match dtype {
            CacheType::F32 => Values::F32(vec![0.0; len]),
            CacheType::F16 => Values::F16(vec![0; len]),
        };
        Ok(Self { values, dim })
    }

    /// Copies what two sizes share.
    fn resized(&self, heads: usize, from: usize, to: usize, len: usize) -> Result<Self> {
        let dtype = if matches!(self.values, Values::F32(_)) { CacheType::F32 } else { CacheType::F16 };
        let mut out = Self::new(dtype, heads, to, self.dim)?;
        let (dim, len) = (self.dim, len * self.dim);
        for head in 0..heads {
            let (old, new) = (head * from * dim, head * to * dim);
            match (&self.values, &mut out.values) {
                (Values::F32(a), Values::F32(b)) => b[new..new + len].copy_from_slice(&a[old..old + len]),
                (Values::F16(a), Values::F16(b)) => b[new..new + len].copy_from_slice(&a[old..old + len]),
                _ => (),
            }
        }
        Ok(out)
    }

    /// The f32 values from value `at` on, where they are stored as such.
    #[inline(always)]
    pub(crate) fn as_f32(&self, at: usize) -> Option<&[f32]> {
        match &self.values {
            Values::F32(values) => Some(&values[at..]),
            Values::F16(_) => None,
        }
    }

    /// Reads values from `at` on.
    #[inline(always)]
    pub(crate) fn read<S: Simd>(&self, s: S, at: usize, out: &mut [f32]) {
        match &self.values {
            Values::F32(values) => out.copy_from_slice(&values[at..at + out.len()]),
            Values::F16(values) => {
                let values = &values[at..at + out.len()];
                let whole = out.len() / S::LANES * S::LANES;
                for i in (0..whole).step_by(S::LANES) {
                    // SAFETY: both slices are longer than `whole`.
                    unsafe { s.store(out.as_mut_ptr().add(i), s.load_f16(values.as_ptr().add(i))) };
                }
                for i in whole..out.len() {
                    out[i] = s.f16(values[i]);
                }
            }
        }
    }

    /// Writes values from `at` on.
    #[inline(always)]
    fn write<S: Simd>(&mut self, s: S, at: usize, x: &[f32]) {
        match &mut self.values {
            Values::F32(values) => values[at..at + x.len()].copy_from_slice(x),
            Values::F16(values) => {
                let values = &mut values[at..at + x.len()];
                let whole = x.len() / S::LANES * S::LANES;
                for i in (0..whole).step_by(S::LANES) {
                    // SAFETY: both slices are longer than `whole`.
                    unsafe { s.store_f16(values.as_mut_ptr().add(i), s.load(x.as_ptr().add(i))) };
                }
                for i in whole..x.len() {
                    values[i] = half::f16::from_f32(x[i]).to_bits();
                }
            }
        }
    }
}

impl KvCache {
    /// An empty cache for `capacity` positions of `heads` heads, whose keys have `k_dim` values and whose values `v_dim`.
    ///
    /// # Errors
    /// Where the sizes overflow.
    pub fn new(dtype: CacheType, heads: usize, k_dim: usize, v_dim: usize, capacity: usize) -> Result<Self> {
        let k = Side::new(dtype, heads, capacity, k_dim)?;
        let v = Side::new(dtype, heads, capacity, v_dim)?;
        Ok(Self { heads, capacity, len: 0, k, v })
    }

    /// Appends the next positions: `k` is `[rows, heads * k_dim]`, `v` is `[rows, heads * v_dim]`.
    ///
    /// # Errors
    /// Where the sizes do not fit, or the capacity is too small; then nothing is changed.
    pub fn append(&mut self, isa: Isa, k: &[f32], v: &[f32]) -> Result<()> {
        struct Append<'a>(&'a mut KvCache, &'a [f32], &'a [f32]);
        impl Kernel for Append<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                let Append(KvCache { heads, capacity, len, k, v }, new_k, new_v) = self;
                for (side, new) in [(k, new_k), (v, new_v)] {
                    let dim = side.dim;
                    if dim == 0 {
                        continue;
                    }
                    for (row, new) in new.chunks_exact(*heads * dim).enumerate() {
                        for (head, new) in new.chunks_exact(dim).enumerate() {
                            side.write(s, (head * *capacity + *len + row) * dim, new);
                        }
                    }
                }
            }
        }
        let rows = k.len().checked_div(self.heads * self.k.dim).unwrap_or(0);
        expect("keys", "values", rows * self.heads * self.k.dim, k.len())?;
        expect("values", "values", rows * self.heads * self.v.dim, v.len())?;
        if rows > self.capacity - self.len {
            let wanted = self.len + rows;
            return Err(Error::Size { operand: "cache", unit: "positions", wanted, found: self.capacity });
        }
        isa.run(Append(self, k, v));
        self.len += rows;
        Ok(())
    }

    /// The keys and values of some positions, as [`append`](Self::append) takes them: to save them, say.
    ///
    /// # Errors
    /// Where the positions are not there.
    pub fn rows(&self, isa: Isa, positions: Range<usize>) -> Result<(Vec<f32>, Vec<f32>)> {
        struct Read<'a>(&'a KvCache, &'a Side, Range<usize>, &'a mut [f32]);
        impl Kernel for Read<'_> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                let Read(cache, side, positions, out) = self;
                for (at, out) in positions.zip(out.chunks_exact_mut((cache.heads * side.dim).max(1))) {
                    for (head, out) in out.chunks_exact_mut(side.dim).enumerate() {
                        side.read(s, (head * cache.capacity + at) * side.dim, out);
                    }
                }
            }
        }
        if positions.start > positions.end || positions.end > self.len {
            return Err(Error::Size { operand: "cache", unit: "positions", wanted: positions.end, found: self.len });
        }
        let mut sides = [&self.k, &self.v].into_iter().map(|side| {
            let mut out = vec![0.0; positions.len() * self.heads * side.dim];
            isa.run(Read(self, side, positions.clone(), &mut out));
            out
        });
        Ok((sides.next().unwrap_or_default(), sides.next().unwrap_or_default()))
    }

    /// How numbers are stored.
    pub fn dtype(&self) -> CacheType {
        match self.k.values {
            Values::F32(_) => CacheType::F32,
            Values::F16(_) => CacheType::F16,
        }
    }

    /// Makes room for `capacity` positions in all; never less than are there.
    ///
    /// # Errors
    /// Where the sizes overflow.
    pub fn reserve(&mut self, capacity: usize) -> Result<()> {
        if capacity > self.capacity {
            self.k = self.k.resized(self.heads, self.capacity, capacity, self.len)?;
            self.v = self.v.resized(self.heads, self.capacity, capacity, self.len)?;
            self.capacity = capacity;
        }
        Ok(())
    }

    /// Forgets all positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Positions that are there.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Heads of keys and values.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Values of a key.
    pub fn k_dim(&self) -> usize {
        self.k.dim
    }

    /// Values of a value.
    pub fn v_dim(&self) -> usize {
        self.v.dim
    }

    /// Bytes taken.
    pub fn bytes(&self) -> usize {
        let side = |side: &Side| match &side.values {
            Values::F32(values) => values.len() * 4,
            Values::F16(values) => values.len() * 2,
        };
        side(&self.k) + side(&self.v)
    }
}
