//! The reference executor against the fixtures, and fused plans against unfused ones.

use selkie_model::{plan, reference::Reference};
use selkie_suite::{DENSE, MBJS, MIXTURES, RECURRENT, run, run_mbjs};

#[test]
fn dense_fixtures() {
    for name in DENSE {
        run(name, &|spec, weights| Box::new(Reference::<f64>::new(spec, weights)));
    }
}

#[test]
fn mixture_fixtures() {
    for name in MIXTURES {
        run(name, &|spec, weights| Box::new(Reference::<f64>::new(spec, weights)));
    }
}

#[test]
fn recurrent_fixtures() {
    for name in RECURRENT {
        run(name, &|spec, weights| Box::new(Reference::<f64>::new(spec, weights)));
    }
}

/// Every fused op means what its small ops mean: the fused plan gives the fixtures' values too, and has fewer ops.
#[test]
fn dense_fixtures_fused() {
    fused(DENSE);
}

#[test]
fn mixture_fixtures_fused() {
    fused(MIXTURES);
}

#[test]
fn recurrent_fixtures_fused() {
    fused(RECURRENT);
}

fn fused(names: &[&str]) {
    for name in names {
        run(name, &|spec, weights| {
            let plain = plan::plan(&spec);
            let fused = plan::fuse(plain.clone());
            assert!(fused.ops.len() < plain.ops.len(), "{name}: nothing was fused");
            Box::new(Reference::<f32>::with_plan(spec, fused, weights))
        });
    }
}

#[test]
fn mbjs_fixtures() {
    for name in MBJS {
        run_mbjs(name, &|spec, weights| Box::new(Reference::<f64>::new(spec, weights)));
    }
}

#[test]
fn mbjs_fixtures_fused() {
    for name in MBJS {
        run_mbjs(name, &|spec, weights| {
            let plain = plan::plan(&spec);
            let fused = plan::fuse(plain.clone());
            assert!(fused.ops.len() < plain.ops.len(), "{name}: nothing was fused");
            Box::new(Reference::<f32>::with_plan(spec, fused, weights))
        });
    }
}
