//! The kernels: written once over instruction sets (see [`Simd`](crate::simd::Simd)) and block formats
//! (see [`Format`](formats::Format)).

pub(crate) mod attention;
pub(crate) mod decode;
mod float;
pub(crate) mod formats;
mod gemm;
mod gemv;
pub(crate) mod heads;
pub(crate) mod kv_cache;
mod math;
pub(crate) mod matmul;
pub(crate) mod q8;
pub(crate) mod recurrent;
mod scratch;
pub(crate) mod vector;

/// A pointer into a result which several tasks write, each its own part.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

#[allow(unsafe_code)]
mod shared {
    // SAFETY: only the pointer is shared; who writes through it says why that is disjoint.
    unsafe impl<T: Send> Send for super::Shared<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for super::Shared<T> {}
}

/// Where a product's results go: `[rows, stride]`, each optionally with a bias per column, stored or added.
#[derive(Clone, Copy)]
pub(crate) struct Sink {
    pub(crate) out: Shared<f32>,
    pub(crate) stride: usize,
    pub(crate) bias: Option<Shared<f32>>,
    pub(crate) add: bool,
}

#[allow(unsafe_code)]
impl Sink {
    /// Puts `values` into row `row` from column `column` on.
    ///
    /// # Safety
    /// The row and the columns are within the result (and the bias), and no other thread touches them.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, row: usize, column: usize, values: &[f32]) {
        // SAFETY: the caller's.
        unsafe {
            let out = std::slice::from_raw_parts_mut(self.out.0.add(row * self.stride + column), values.len());
            match (self.bias, self.add) {
                (None, false) => out.copy_from_slice(values),
                (None, true) => out.iter_mut().zip(values).for_each(|(o, v)| *o += v),
                (Some(bias), add) => {
                    let bias = std::slice::from_raw_parts(bias.0.add(column).cast_const(), values.len());
                    for ((o, v), b) in out.iter_mut().zip(values).zip(bias) {
                        *o = if add { *o + v + b } else { v + b };
                    }
                }
            }
        }
    }

    /// The same place for further terms of the same sums.
    pub(crate) fn further(self) -> Self {
        Self { bias: None, add: true, ..self }
    }
}
