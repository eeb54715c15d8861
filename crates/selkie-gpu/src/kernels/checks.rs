//! What a [`Rig`] is held to: the reference, passes one after another.

use selkie_model::{Batch, Executor, Sequence, Snapshot, State, Want, plan::BufferId, reference::Reference};

use super::rig::Rig;
use crate::{
    Flavours, GpuExecutor, Limits, Result, RunOptions,
    compile::{Program, Regime, Target, compile, compile_block},
    weights::Needed,
};

/// The dispatches of the ops under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dispatches {
    /// For a token.
    pub token: usize,
    /// For blocks of rows, with one sequence in them.
    pub block: usize,
}

impl Rig {
    /// Runs `passes`, each so many rows of each sequence, and holds the values of `outs` and the final states to the
    /// reference's in f64: off by no more than `tolerance` times the largest value of the buffer or array.
    #[track_caller]
    pub fn check(&self, outs: &[BufferId], passes: &[&[usize]], tolerance: f64) -> Dispatches {
        let mut found = None;
        for &out in outs {
            let (spec, plan) = self.model(out);
            let weights = || self.loaded.iter().cloned().collect();
            let options = RunOptions {
                exact: self.exact,
                block_rows: passes.iter().map(|pass| pass.iter().sum()).max().unwrap_or(0),
                block_outputs: passes.iter().map(|pass| pass.iter().sum()).max().unwrap_or(0),
                max_positions: passes.iter().flat_map(|pass| pass.iter()).sum(),
                ..RunOptions::default()
            };
            let mut reference = Reference::<f64>::with_plan(spec.clone(), plan.clone(), weights());
            let made = GpuExecutor::with_plan(self.gpu.clone(), &spec, plan.clone(), weights(), &options);
            let mut tested = pollster::block_on(made).unwrap_or_else(|e| panic!("{e}"));
            let (wanted, wanted_states) = self.run(&mut reference, passes);
            let (got, got_states) = self.run(&mut tested, passes);
            for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                near(&format!("pass {i} {:?}", passes[i]), "", got, wanted, tolerance);
            }
            for (s, (got, wanted)) in got_states.iter().zip(&wanted_states).enumerate() {
                assert_eq!(got.positions, wanted.positions, "sequence {s}");
                got.check(&self.slots).unwrap_or_else(|e| panic!("sequence {s}: {e}"));
                let names: Vec<&str> =
                    self.slots.iter().flat_map(|slot| slot.planes(got.positions)).map(|plane| plane.0).collect();
                for ((got, wanted), name) in got.planes.iter().zip(&wanted.planes).zip(names) {
                    let [got, wanted] = [got, wanted].map(|plane| plane.to_f32().expect("numbers"));
                    near(&format!("{name} of sequence {s}"), name, &got, &wanted, tolerance);
                }
            }
            let count = |regime| tested.engine().table(regime).rows().filter(|row| row.layer.is_some()).count();
            found = Some(Dispatches { token: count(Regime::Token), block: count(Regime::Block) });
        }
        found.expect("something to be held to the reference")
    }

    /// The ops, compiled for a plain device with such limits, without one.
    pub fn compiled(
        &self,
        out: BufferId,
        regime: Regime,
        limits: Limits,
        rows: usize,
        positions: usize,
    ) -> Result<Program> {
        let (spec, plan) = self.model(out);
        let target = Target { regime, limits, flavours: Flavours::default(), exact: self.exact };
        let mut needed = Needed::new(&spec, None, limits);
        compile(&spec, &plan, target, rows, positions, &mut needed)
    }

    /// The same for blocks of as many rows as fit, and how many that are.
    pub fn compiled_block(&self, out: BufferId, limits: Limits, rows: usize) -> Result<(Program, usize)> {
        let (spec, plan) = self.model(out);
        let target = Target { regime: Regime::Block, limits, flavours: Flavours::default(), exact: self.exact };
        let mut needed = Needed::new(&spec, None, limits);
        compile_block(&spec, &plan, target, rows, rows, &mut needed)
    }

    /// The values of every row of each pass, and the states in the end.
    fn run(&self, executor: &mut dyn Executor, passes: &[&[usize]]) -> (Vec<Vec<f32>>, Vec<Snapshot>) {
        let sequences = passes.iter().map(|pass| pass.len()).max().unwrap_or(0);
        let capacity = passes.iter().flat_map(|pass| pass.iter()).sum();
        let mut states: Vec<State> = (0..sequences)
            .map(|_| pollster::block_on(executor.new_state(capacity)).unwrap_or_else(|e| panic!("{e}")))
            .collect();
        let mut values = vec![];
        let mut fed = 0;
        for pass in passes {
            let rows: usize = pass.iter().sum();
            let ids: Vec<u32> = (fed..fed + rows).map(|id| (id % self.tokens) as u32).collect();
            fed += rows;
            let mut at = 0;
            let (mut sequences, mut own) = (vec![], vec![]);
            for (state, &n) in states.iter_mut().zip(*pass) {
                if n > 0 {
                    sequences.push(Sequence { rows: at..at + n });
                    own.push(state);
                }
                at += n;
            }
            let outputs: Vec<usize> = (0..rows).collect();
            let batch = Batch { ids: &ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
            let output = pollster::block_on(executor.forward(&batch, &mut own)).unwrap_or_else(|e| panic!("{e}"));
            values.push(output.values);
        }
        let snapshots =
            states.iter_mut().map(|state| pollster::block_on(state.snapshot()).expect("a snapshot")).collect();
        (values, snapshots)
    }
}

/// No value is further off than `tolerance` times the largest; angles may be a turn apart.
#[track_caller]
fn near(what: &str, name: &str, got: &[f32], wanted: &[f32], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}: number of values");
    let largest = wanted.iter().fold(0.0, |a: f64, &b| a.max(f64::from(b).abs()));
    assert!(wanted.is_empty() || largest > 0.0, "{what}: nothing but zeros proves nothing");
    let mut worst = (0.0, 0);
    for (i, (&g, &w)) in got.iter().zip(wanted).enumerate() {
        let mut off = (f64::from(g) - f64::from(w)).abs();
        if name == "angle" {
            off = off.min((std::f64::consts::TAU - off).abs());
        }
        if off.is_nan() || off > worst.0 {
            worst = (off, i);
        }
    }
    let (off, i) = worst;
    assert!(
        off <= tolerance * largest,
        "{what}: value {i} is {}, not {}: off by {:.1e} of the largest",
        got[i],
        wanted[i],
        off / largest
    );
}

/// The rig itself, with ops whose kernels are simple.
mod tests {
    use selkie_formats::DType;
    use selkie_model::{
        plan::{AttentionOp, Op, Product, Slot},
        rope::{Pairing, RopeScaling, RopeSpec},
    };

    use super::*;

    #[test]
    fn values_and_caches_are_the_references() {
        let mut rig = Rig::new(1);
        let [q, k, v] = rig.inputs([24, 8, 8]);
        let cache = rig.slot(Slot::KvCache { n_kv_heads: 1, head_dim: 8, v_head_dim: 8, window: None });
        let out = rig.buffer(24);
        let (n_heads, n_kv_heads, head_dim, v_head_dim) = (3, 1, 8, 8);
        let (scale, softcap, window, sinks) = (0.5, None, None, None);
        let op = AttentionOp {
            q,
            k,
            v,
            cache,
            n_heads,
            n_kv_heads,
            head_dim,
            v_head_dim,
            scale,
            softcap,
            window,
            sinks,
            out,
        };
        rig.op(Op::Attention(op));
        let dispatches = rig.check(&[out], &[&[3, 70], &[1, 0], &[0, 1], &[1, 5]], 1e-5);
        assert_eq!(dispatches, Dispatches { token: 2, block: 2 });
    }

    #[test]
    fn angles_of_positions() {
        let mut rig = Rig::new(3);
        let x = rig.input(24);
        let (n_dims, theta, pairing) = (8, 1e4, Pairing::Halves);
        let rope = rig.rope(RopeSpec { n_dims, theta, pairing, scaling: RopeScaling::None, freq_factors: None });
        let out = rig.buffer(24);
        rig.op(Op::Rope { x, rope, head_dim: 12, out });
        rig.check(&[out], &[&[9, 2], &[1, 0]], 1e-5);
    }

    #[test]
    fn products_of_blocks() {
        let mut rig = Rig::new(2);
        let x = rig.input(64);
        let products = [DType::Q8_0, DType::F16].map(|dtype| Product {
            weight: rig.matrix(dtype, &[40, 64]),
            bias: Some(rig.vector(&[40])),
            out: rig.buffer(40),
        });
        rig.op(Op::Linears { x, products: products.to_vec() });
        rig.check(&products.map(|product| product.out), &[&[1], &[33]], 1e-5);
    }

    #[test]
    #[should_panic(expected = "value 3 is 5, not 4")]
    fn what_differs_is_found() {
        near("values", "", &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 4.0], 0.1);
    }

    #[test]
    #[should_panic(expected = "value 1 is NaN")]
    fn what_is_no_number_is_found() {
        near("values", "", &[1.0, f32::NAN], &[1.0, 2.0], 0.1);
    }
}
