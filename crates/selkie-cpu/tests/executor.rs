//! The CPU executor against the fixtures.

use selkie_cpu::{CpuExecutor, CpuOptions};
use selkie_suite::{DENSE, run};

#[test]
fn dense_fixtures_exact() {
    for name in DENSE {
        run(name, &|spec, weights| {
            let options = CpuOptions { threads: Some(2), exact: true };
            Box::new(CpuExecutor::new(&spec, weights, &options).expect("an executor"))
        });
    }
}
