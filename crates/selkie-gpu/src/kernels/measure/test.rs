use crate::{Gpu, GpuOptions, Limits};

fn open(limits: Option<Limits>) -> Gpu {
    let options = GpuOptions { software: true, limits, ..GpuOptions::default() };
    pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
}

#[test]
fn figures_make_sense() {
    for limits in [None, Some(Limits { binding: 4 << 20, ..Limits::FLOOR })] {
        let gpu = open(limits);
        let measured = pollster::block_on(gpu.measure()).expect("a measurement");
        println!("{measured:?}");
        assert!((1e8..1e14).contains(&measured.read), "{measured:?}");
        assert!(measured.dispatch.as_nanos() > 100 && measured.dispatch < measured.round_trip, "{measured:?}");
        assert_eq!(gpu.counts().bytes(), 0, "what was measured with is still there");
    }
}
