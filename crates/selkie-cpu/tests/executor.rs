//! The CPU executor against the fixtures.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_suite::{DENSE, MBJS, MIXTURES, RECURRENT, run, run_mbjs};

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
