//! Golden values, and what holds for the state of any recurrent op.

use std::fs;

use selkie_cpu::{MAX_REWIND, Pool, Result};
use selkie_formats::{Checkpoint, MemorySource};

use crate::common::{Random, pools};

/// One file of `fixtures/ops`.
pub struct Golden(Checkpoint);

impl Golden {
    pub fn open(name: &str) -> Self {
        let path = selkie_suite::fixtures().join("ops").join(format!("{name}.safetensors"));
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let source = std::rc::Rc::new(MemorySource::new(name, bytes));
        Self(pollster::block_on(Checkpoint::open_safetensors(vec![source], None)).expect("a golden file"))
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.0.need(name).expect("a golden tensor").shape.clone()
    }

    pub fn get(&self, name: &str) -> Vec<f32> {
        let tensor = pollster::block_on(self.0.load(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        tensor.to_f32().expect("floats")
    }

    pub fn ints(&self, name: &str) -> Vec<i32> {
        let bytes = pollster::block_on(self.0.load(name)).expect("a golden tensor").bytes;
        bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    pub fn find(&self, name: &str) -> Option<Vec<f32>> {
        self.0.get(name).map(|_| self.get(name))
    }

    /// `[batch, channels, length]` as one `[length, channels]` each.
    pub fn by_tokens(&self, name: &str) -> Vec<Vec<f32>> {
        let &[_, channels, length] = &self.shape(name)[..] else { panic!("{name} has three axes") };
        self.get(name).chunks(channels * length).map(|x| transposed(x, length)).collect()
    }

    /// The values of each sequence of a batch.
    pub fn by_sequences(&self, name: &str) -> Vec<Vec<f32>> {
        let values = self.get(name);
        values.chunks(values.len() / self.shape(name)[0]).map(<[f32]>::to_vec).collect()
    }
}

/// Rows of `columns` values into columns.
pub fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| x.iter().skip(c).step_by(columns).copied()).collect()
}

/// No value is further off than `tolerance` times the largest.
#[track_caller]
pub fn near(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    let largest = wanted.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    assert!(wanted.is_empty() || largest > 0.0, "{what}: nothing but zeros proves nothing");
    for (i, (&g, w)) in got.iter().zip(wanted).enumerate() {
        let off = (g as f64 - w).abs() / largest;
        assert!(off <= tolerance, "{what}: value {i} is {g}, not {w}: off by {off:.1e} of the largest");
    }
}

pub fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x as f64).collect()
}

pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The state of a recurrent op under test, with its definition.
pub trait Layer: Clone {
    /// Values of a token in each input.
    fn widths(&self) -> Vec<usize>;
    /// Values of a token in the result.
    fn outputs(&self) -> usize;
    fn forward(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()>;
    fn reach(&self) -> usize;
    fn rewind(&mut self, n: usize) -> Result<()>;
    fn planes(&self) -> Vec<Vec<f32>>;
    fn set_planes(&mut self, planes: &[Vec<f32>]) -> Result<()>;
    fn bytes(&self) -> usize;
    /// The definition, token by token in f64: the result, and the state after it.
    fn definition(&self, planes: &mut [Vec<f64>], inputs: &[Vec<f64>]) -> Vec<f64>;
    /// Planes such that equal states have equal ones.
    fn comparable(&self, planes: &[Vec<f64>]) -> Vec<Vec<f64>> {
        planes.to_vec()
    }
}

/// Passes the methods of a state on.
#[macro_export]
macro_rules! state_methods {
    () => {
        fn reach(&self) -> usize {
            self.state.reach()
        }
        fn rewind(&mut self, n: usize) -> selkie_cpu::Result<()> {
            self.state.rewind(n)
        }
        fn planes(&self) -> Vec<Vec<f32>> {
            self.state.planes()
        }
        fn set_planes(&mut self, planes: &[Vec<f32>]) -> selkie_cpu::Result<()> {
            self.state.set_planes(planes)
        }
        fn bytes(&self) -> usize {
            self.state.bytes()
        }
    };
}

/// Takes in a range of rows.
pub fn feed<L: Layer>(layer: &mut L, pool: &Pool, inputs: &[Vec<f32>], rows: std::ops::Range<usize>) -> Vec<f32> {
    let parts: Vec<&[f32]> =
        inputs.iter().zip(layer.widths()).map(|(x, width)| &x[rows.start * width..rows.end * width]).collect();
    let mut out = vec![f32::NAN; rows.len() * layer.outputs()];
    layer.forward(pool, &parts, &mut out).expect("sizes that fit");
    out
}

/// A random piece of a sequence: often one token, now and then many.
fn piece(random: &mut Random, left: usize) -> usize {
    let most = [1, 1, 2, 7, 40, 150][random.bits() as usize % 6];
    (random.bits() as usize % most + 1).min(left)
}

#[track_caller]
fn near_f32(what: &str, got: &[f32], wanted: &[f32], tolerance: f64) {
    near(what, got, &to_f64(wanted), tolerance);
}

fn near_planes<L: Layer>(what: &str, layer: &L, wanted: &[Vec<f64>], tolerance: f64) {
    let got: Vec<Vec<f64>> = layer.planes().iter().map(|plane| to_f64(plane)).collect();
    let (got, wanted) = (layer.comparable(&got), layer.comparable(wanted));
    assert_eq!(got.len(), wanted.len(), "{what}: planes");
    for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let got: Vec<f32> = got.iter().map(|&v| v as f32).collect();
        near(&format!("{what}, plane {i}"), &got, wanted, tolerance);
    }
}

/// All that a state promises, on random inputs of `rows` tokens from `inputs`.
pub fn check<L: Layer>(
    what: &str,
    fresh: &L,
    rows: usize,
    tolerance: f64,
    inputs: impl Fn(&mut Random, usize) -> Vec<Vec<f32>>,
) {
    for (round, pool) in pools().enumerate() {
        let what = &format!("{what} on {}", pool.isa());
        let mut random = Random::new(1 + round as u64);
        let inputs = |random: &mut Random, rows| inputs(random, rows);
        let x = inputs(&mut random, rows);

        // One piece is what the definition says.
        let mut planes: Vec<Vec<f64>> = fresh.planes().iter().map(|plane| to_f64(plane)).collect();
        let wanted = fresh.definition(&mut planes, &x.iter().map(|x| to_f64(x)).collect::<Vec<_>>());
        let mut whole = fresh.clone();
        let out = feed(&mut whole, &pool, &x, 0..rows);
        near(what, &out, &wanted, tolerance);
        near_planes(what, &whole, &planes, tolerance);

        // Pieces, now and then forked or moved through the portable form, are the same.
        let mut layer = fresh.clone();
        let mut at = 0;
        let mut pieces = Vec::new();
        while at < rows {
            let next = at + piece(&mut random, rows - at);
            pieces.extend(feed(&mut layer, &pool, &x, at..next));
            at = next;
            match random.bits() % 8 {
                0 => layer = layer.clone(),
                1 => {
                    let planes = layer.planes();
                    layer = fresh.clone();
                    layer.set_planes(&planes).expect("planes of the same op");
                }
                _ => (),
            }
        }
        near(&format!("{what} in pieces"), &pieces, &wanted, tolerance);
        near_planes(&format!("{what} in pieces"), &layer, &planes, tolerance);

        // Tokens that were taken back leave no trace.
        let mut layer = fresh.clone();
        let mut at = 0;
        let mut furthest = 0;
        let mut out = Vec::new();
        while at < rows {
            let next = at + piece(&mut random, rows - at);
            out.extend(feed(&mut layer, &pool, &x, at..next));
            let other = random.bits() as usize % 9;
            let noise = inputs(&mut random, other);
            feed(&mut layer, &pool, &noise, 0..other);
            furthest = furthest.max(next + other);
            let back = next + other - furthest.saturating_sub(MAX_REWIND).min(next);
            assert!((back..=MAX_REWIND).contains(&layer.reach()), "{what}: {} of {back} in reach", layer.reach());
            let back = other + random.bits() as usize % (back - other + 1);
            layer.rewind(back).unwrap_or_else(|e| panic!("{what}: {back} tokens from {}: {e}", next + other));
            at = next + other - back;
            out.truncate(at * layer.outputs());
            if random.bits().is_multiple_of(4) {
                // The portable form of a state just rewound.
                let planes = layer.planes();
                let mut same = fresh.clone();
                same.set_planes(&planes).expect("planes of the same op");
                let more = (rows - at).min(3);
                let mut forked = layer.clone();
                let forked = feed(&mut forked, &pool, &x, at..at + more);
                near_f32(
                    &format!("{what} rewound and kept"),
                    &feed(&mut same, &pool, &x, at..at + more),
                    &forked,
                    tolerance,
                );
                assert!(same.rewind(more + 1).is_err(), "{what}: before the state was set there is nothing");
                same.rewind(more).expect("as far as the state that was set");
            }
        }
        near(&format!("{what} with detours"), &out, &wanted, tolerance);
        near_planes(&format!("{what} with detours"), &layer, &planes, tolerance);

        // How far back one may go.
        let mut layer = fresh.clone();
        assert!(layer.reach() == 0 && layer.rewind(1).is_err(), "{what}: nothing before the beginning");
        feed(&mut layer, &pool, &x, 0..3);
        assert!(layer.rewind(4).is_err(), "{what}: nothing before the beginning");
        layer.rewind(3).expect("as far as the beginning");
        near_f32(&format!("{what} from the beginning"), &feed(&mut layer, &pool, &x, 0..rows), &out, tolerance);
        assert!(layer.rewind(MAX_REWIND + 1).is_err(), "{what}: further than promised");

        // It takes no more memory as it goes on, and refuses what does not fit.
        let after = layer.bytes();
        for _ in 0..3 {
            feed(&mut layer, &pool, &x, 0..rows);
        }
        (0..200).for_each(|i| drop(feed(&mut layer, &pool, &x, i % rows..i % rows + 1)));
        let grown = layer.bytes();
        (0..400).for_each(|i| drop(feed(&mut layer, &pool, &x, i % rows..i % rows + 1)));
        assert!(layer.bytes() <= grown.max(2 * after), "{what}: {after}, {grown}, {} bytes", layer.bytes());
        let mut parts: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
        parts[0] = &parts[0][1..];
        let before = layer.planes();
        assert!(layer.forward(&pool, &parts, &mut vec![0.0; rows * layer.outputs()]).is_err(), "{what}: odd sizes");
        assert!(layer.set_planes(&before[1..]).is_err(), "{what}: too few planes");
        let mut odd = before.clone();
        odd.last_mut().expect("a plane").pop();
        assert!(layer.set_planes(&odd).is_err(), "{what}: too small a plane");
        assert_eq!(layer.planes(), before, "{what}: an error changed the state");
        feed(&mut layer, &pool, &x, 0..0);
        assert_eq!(layer.planes(), before, "{what}: no tokens changed the state");
    }
}
