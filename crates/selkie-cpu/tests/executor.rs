//! The CPU executor against the fixtures.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_model::{Batch, Executor, Sequence, Want};
use selkie_suite::{Case, DENSE, MBJS, MIXTURES, RECURRENT, run, run_mbjs};

fn exact(names: &[&str]) {
    for name in names {
        run(name, &|spec, weights| {
            let options = CpuOptions { threads: Some(2), exact: true };
            Box::new(CpuExecutor::new(&spec, weights, &options).expect("an executor"))
        });
    }
}

#[test]
fn dense_fixtures_exact() {
    exact(DENSE);
}

#[test]
fn recurrent_fixtures_exact() {
    exact(RECURRENT);
}

#[test]
fn mixture_fixtures_exact() {
    exact(MIXTURES);
}

#[test]
fn mbjs_fixtures_exact() {
    for name in MBJS {
        run_mbjs(name, &|spec, weights| {
            let options = CpuOptions { threads: Some(2), exact: true };
            Box::new(CpuExecutor::new(&spec, weights, &options).expect("an executor"))
        });
    }
}

/// Activations in 8 bits and caches in f16, as they are by default: off by what rounding costs, which an expert chosen otherwise
/// or a block read wrongly would exceed by far. Of float weights only caches are rounded.
#[test]
fn mixture_fixtures_rounded() {
    for name in MIXTURES {
        for form in &Case::open(name).forms {
            let (spec, weights) = form.load();
            let options = CpuOptions { threads: Some(2), exact: false };
            let mut executor = CpuExecutor::new(&spec, weights, &options).expect("an executor");
            let wanted = form.expected().seq;
            let mut state = pollster::block_on(executor.new_state(wanted.ids.len())).expect("a state");
            let outputs: Vec<usize> = (0..wanted.ids.len()).collect();
            let sequences = [Sequence { rows: 0..wanted.ids.len() }];
            let batch = Batch { ids: &wanted.ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
            let got = pollster::block_on(executor.forward(&batch, &mut [&mut state])).expect("a pass").values;
            let square = |values: &mut dyn Iterator<Item = f32>| -> f64 { values.map(|v| f64::from(v).powi(2)).sum() };
            let off = square(&mut got.iter().zip(&wanted.logits).map(|(a, b)| a - b));
            let share = (off / square(&mut wanted.logits.iter().copied())).sqrt();
            let bound = if form.name.contains("model-") { 0.06 } else { 0.002 };
            assert!(share <= bound, "{name}/{}: off by {share} of the logits", form.name);
        }
    }
}
