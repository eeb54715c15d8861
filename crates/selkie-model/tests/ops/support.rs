//! Golden files, seeded values, and what "equal" means.

use std::{collections::BTreeMap, fs, ops::Range, rc::Rc};

use selkie_formats::{Checkpoint, DType, MemorySource, Tensor, quant};
use selkie_model::LoadedWeight;
use serde_json::Value;

/// One file of `fixtures/ops`.
pub struct Golden {
    file: Checkpoint,
}

impl Golden {
    pub fn open(name: &str) -> Self {
        let path = selkie_suite::fixtures().join("ops").join(format!("{name}.safetensors"));
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let source = Rc::new(MemorySource::new(name, bytes));
        let file = pollster::block_on(Checkpoint::open_safetensors(vec![source], None)).expect("a golden file");
        Self { file }
    }

    /// The cases' names.
    pub fn cases(&self) -> Vec<String> {
        self.file.notes.keys().cloned().collect()
    }

    /// A case's parameters.
    pub fn parameters(&self, case: &str) -> Value {
        serde_json::from_str(&self.file.notes[case]).expect("parameters")
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.file.need(name).expect("a golden tensor").shape.clone()
    }

    pub fn has(&self, name: &str) -> bool {
        self.file.get(name).is_some()
    }

    /// Floats.
    pub fn get(&self, name: &str) -> Vec<f64> {
        let tensor = pollster::block_on(self.file.load(name)).expect("a golden tensor");
        tensor.to_f32().expect("floats").iter().map(|&v| f64::from(v)).collect()
    }

    /// Floats, where they are there.
    pub fn find(&self, name: &str) -> Option<Vec<f64>> {
        self.has(name).then(|| self.get(name))
    }

    /// One entry of a batch: that part of the first axis.
    pub fn entry(&self, name: &str, entry: usize) -> Vec<f64> {
        let values = self.get(name);
        let each = values.len() / self.shape(name)[0];
        values[entry * each..][..each].to_vec()
    }

    /// What the gradients of a case are by.
    fn gradients(&self, case: &str) -> Vec<&str> {
        let start = format!("{case}.grad.");
        self.file.tensors().iter().filter_map(|t| t.name.strip_prefix(&start)).collect()
    }

    /// Integers.
    pub fn ints(&self, name: &str) -> Vec<i32> {
        let bytes = pollster::block_on(self.file.load(name)).expect("a golden tensor").bytes;
        bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

/// The gradients of a case, gathered over a batch.
#[derive(Default)]
pub struct Gathered(BTreeMap<String, Vec<f64>>);

impl Gathered {
    /// By what an entry has for itself: entry after entry.
    pub fn push(&mut self, name: &str, values: &[f64]) {
        self.0.entry(name.to_owned()).or_default().extend(values);
    }

    /// By what all entries share.
    pub fn add(&mut self, name: &str, values: &[f64]) {
        let sums = self.0.entry(name.to_owned()).or_insert_with(|| vec![0.0; values.len()]);
        assert_eq!(sums.len(), values.len());
        sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
    }

    /// Every gradient that the file has is there, and right.
    #[track_caller]
    pub fn check(&self, golden: &Golden, case: &str, tolerance: f64) {
        let names = golden.gradients(case);
        assert!(!names.is_empty());
        for name in names {
            let got = self.0.get(name).unwrap_or_else(|| panic!("{case}: no gradient by {name}"));
            let wanted = golden.get(&format!("{case}.grad.{name}"));
            // Decays and rotations do nothing to a first token that nothing came before.
            let none = |values: &[f64]| values.iter().all(|v| v.abs() < 1e-12);
            if case == "one_token" && none(&wanted) {
                assert!(none(got), "{case}.grad.{name}");
            } else {
                near(got, &wanted, tolerance, &format!("{case}.grad.{name}"));
            }
        }
    }
}

/// No value is further off than `tolerance` times the largest.
#[track_caller]
pub fn near(got: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    let largest = wanted.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    assert!(wanted.is_empty() || largest > 0.0, "{what}: nothing but zeros proves nothing");
    for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
        let off = (g - w).abs() / largest;
        assert!(off <= tolerance, "{what}: value {i} is {g}, not {w}: off by {off:.1e} of the largest");
    }
}

/// Seeded values.
pub struct Seeded(pub u64);

impl Seeded {
    /// Sixty-four bits: a counter, mixed.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1, in steps of 2⁻¹⁰: exact in f32 too, and so are small steps from it.
    pub fn values(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| (self.bits() % 2049) as f64 / 1024.0 - 1.0).collect()
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        self.values(n).iter().map(|&v| v as f32).collect()
    }
}

/// `gradient` is that of `loss` at `x`: central differences at two steps, extrapolated to step 0.
#[track_caller]
pub fn check_gradient(what: &str, x: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    // Powers of two, so that a step from a value of `Seeded` is exact in f32 as well.
    check_gradient_with(what, x, gradient, 2f64.powi(-9), 1e-8, loss);
}

/// As [`check_gradient`], with the larger step and the bound, relative to the largest value, given.
#[track_caller]
pub fn check_gradient_with(
    what: &str,
    x: &[f64],
    gradient: &[f64],
    step: f64,
    bound: f64,
    loss: impl Fn(&[f64]) -> f64,
) {
    let differences: Vec<f64> = (0..x.len())
        .map(|i| {
            let at = |by: f64| {
                let mut moved = x.to_vec();
                moved[i] += by;
                loss(&moved)
            };
            let slope = |h: f64| (at(h) - at(-h)) / (2.0 * h);
            (4.0 * slope(step / 2.0) - slope(step)) / 3.0
        })
        .collect();
    near(gradient, &differences, bound, what);
}

/// As [`check_gradient`], of a loss of several operands: each with its name, where it is, and the gradient by it.
#[track_caller]
pub fn check_gradients(what: &str, operands: Vec<(&str, Vec<f64>, Vec<f64>)>, loss: impl Fn(&[&[f64]]) -> f64) {
    for (i, (name, value, gradient)) in operands.iter().enumerate() {
        check_gradient(&format!("{name} of {what}"), value, gradient, |moved| {
            let values = operands.iter().enumerate().map(|(j, (_, value, _))| if i == j { moved } else { &value[..] });
            loss(&values.collect::<Vec<_>>())
        });
    }
}

/// `[a, b, width]` to `[b, a, width]`.
pub fn swap_axes(values: &[f64], a: usize, b: usize, width: usize) -> Vec<f64> {
    assert_eq!(values.len(), a * b * width);
    let mut out = vec![0.0; values.len()];
    for i in 0..a {
        for j in 0..b {
            out[(j * a + i) * width..][..width].copy_from_slice(&values[(i * b + j) * width..][..width]);
        }
    }
    out
}

/// Those rows of `[_, width]`.
pub fn rows_of<'a>(values: &'a [f64], width: usize, rows: &Range<usize>) -> &'a [f64] {
    &values[rows.start * width..rows.end * width]
}

/// Those columns of `[rows, width]`.
pub fn columns(values: &[f64], width: usize, columns: Range<usize>) -> Vec<f64> {
    values.chunks_exact(width).flat_map(|row| row[columns.clone()].iter().copied()).collect()
}

/// Writes those columns of `[rows, width]`.
pub fn put_columns(into: &mut [f64], width: usize, columns: Range<usize>, values: &[f64]) {
    let rows = into.chunks_exact_mut(width).zip(values.chunks_exact(columns.len()));
    rows.for_each(|(row, values)| row[columns.clone()].copy_from_slice(values));
}

/// `x` with `softplus(x) = y`: the golden files hold some step sizes as they are after it.
pub fn inverse_softplus(y: f64) -> f64 {
    y + (-(-y).exp_m1()).ln()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A weight of `shape` stored as `dtype`.
pub fn stored(dtype: DType, shape: &[usize], values: &[f32]) -> LoadedWeight {
    let row_len = *shape.last().expect("a shape");
    let rows = values.len() / row_len;
    let mut bytes = vec![0; rows * dtype.row_bytes(row_len).expect("whole blocks")];
    quant::encode(dtype, values, &mut bytes).expect("an encoder");
    let part = Tensor { dtype, shape: vec![rows, row_len], bytes: bytes.into() };
    LoadedWeight { name: "test".into(), shape: shape.to_vec(), parts: vec![part] }
}
