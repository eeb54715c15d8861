//! Attention against the reference, at sizes and with rules that fixtures lack.

use selkie_model::{
    plan::{AttentionOp, BufferId, Op, Slot},
    rope::{Pairing, RopeScaling, RopeSpec},
};

use crate::{
    Gpu, GpuOptions, Limits,
    compile::Regime,
    kernels::{checks::Dispatches, rig::Rig},
};

/// An attention's sizes and rules.
#[derive(Clone, Copy)]
struct Shape {
    /// Query heads, and key and value heads.
    heads: [usize; 2],
    head_dim: usize,
    v_head_dim: usize,
    softcap: Option<f32>,
    window: Option<usize>,
    sinks: bool,
    /// Queries, keys and values in one place.
    together: bool,
    norms: Norms,
    clamp: Option<f32>,
    rope: Option<Pairing>,
}

/// What queries and keys are normed by.
#[derive(Clone, Copy, PartialEq)]
enum Norms {
    None,
    Plain,
    /// A weight for all heads.
    Weights,
    /// A weight for each head.
    OfHeads,
    /// Over all heads.
    WholeRows,
    /// Weights, queries only.
    Queries,
}

const PLAIN: Shape = Shape {
    heads: [4, 2],
    head_dim: 64,
    v_head_dim: 64,
    softcap: None,
    window: None,
    sinks: false,
    together: true,
    norms: Norms::None,
    clamp: None,
    rope: None,
};

impl Shape {
    fn rig(&self, seed: u64) -> (Rig, BufferId) {
        let mut rig = Rig::new(seed);
        let ([n_heads, n_kv_heads], head_dim, v_head_dim) = (self.heads, self.head_dim, self.v_head_dim);
        let widths = [n_heads * head_dim, n_kv_heads * head_dim, n_kv_heads * v_head_dim];
        let [mut q, mut k, v] = if self.together { rig.inputs(widths) } else { widths.map(|width| rig.input(width)) };
        for (side, x) in [&mut q, &mut k].into_iter().enumerate() {
            let width = widths[side];
            let (group, len) = match self.norms {
                Norms::Queries if side == 1 => (head_dim, None),
                Norms::None | Norms::Plain => (head_dim, None),
                Norms::Weights | Norms::Queries => (head_dim, Some(head_dim)),
                Norms::OfHeads => (head_dim, Some(width)),
                Norms::WholeRows => (width, Some(width)),
            };
            if len.is_some() || self.norms == Norms::Plain {
                let weight = len.map(|len| rig.vector_between(&[len], 0.5, 1.5));
                let out = rig.buffer(width);
                // A large term, and another for keys, to tell which is taken.
                let eps = [0.1, 0.3][side];
                rig.op(Op::RmsNorm { x: *x, weight, group, eps, out });
                *x = out;
            }
            if let Some(limit) = self.clamp {
                let out = rig.buffer(width);
                rig.op(Op::Clamp { x: *x, limit, out });
                *x = out;
            }
        }
        if let Some(pairing) = self.rope {
            let (n_dims, theta) = (head_dim / 4 * 2, 1e3);
            let rope = rig.rope(RopeSpec { n_dims, theta, pairing, scaling: RopeScaling::None, freq_factors: None });
            for (side, x) in [&mut q, &mut k].into_iter().enumerate() {
                let out = rig.buffer(widths[side]);
                rig.op(Op::Rope { x: *x, rope, head_dim, out });
                *x = out;
            }
        }
        let cache = rig.slot(Slot::KvCache { n_kv_heads, head_dim, v_head_dim, window: self.window });
        let sinks = self.sinks.then(|| rig.vector_between(&[n_heads], 0.0, 6.0));
        let out = rig.buffer(n_heads * v_head_dim);
        let (softcap, window) = (self.softcap, self.window);
        // Scores far enough apart that some positions count much more than others.
        let scale = 4.0 / (head_dim as f32).sqrt();
        let sizes = (n_heads, n_kv_heads, head_dim, v_head_dim);
        let (n_heads, n_kv_heads, head_dim, v_head_dim) = sizes;
        rig.op(Op::Attention(AttentionOp {
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
        }));
        (rig, out)
    }
}

/// Tokens around the borders of splits, and far beyond.
const TOKENS: &[&[usize]] = &[&[1], &[254], &[1], &[1], &[1], &[1], &[253], &[1], &[1], &[187], &[1], &[1]];

#[test]
fn tokens_of_long_sequences() {
    let shapes: &[(&str, Shape)] = &[
        ("plain", PLAIN),
        ("sinks", Shape { sinks: true, ..PLAIN }),
        ("a window within a split", Shape { window: Some(100), sinks: true, ..PLAIN }),
        ("a window of one", Shape { window: Some(1), ..PLAIN }),
        ("a window of a split", Shape { window: Some(256), ..PLAIN }),
        ("a window beyond a split", Shape { window: Some(300), ..PLAIN }),
        ("capped", Shape { softcap: Some(1.5), ..PLAIN }),
        ("all of it", Shape { softcap: Some(3.0), window: Some(400), sinks: true, together: false, ..PLAIN }),
    ];
    for (name, shape) in shapes {
        println!("{name}");
        let (rig, out) = shape.rig(1);
        assert_eq!(rig.check(&[out], TOKENS, 2e-5), Dispatches { token: 2, block: 2 }, "{name}");
    }
}

#[test]
fn heads_of_every_size() {
    for (heads, head_dim, v_head_dim) in [
        ([3, 1], 12, 12),
        ([8, 8], 64, 64),
        ([8, 1], 128, 128),
        ([2, 1], 256, 256),
        ([4, 2], 192, 128),
        ([6, 2], 80, 96),
        ([2, 2], 10, 6),
        ([1, 1], 96, 512),
    ] {
        println!("{heads:?} {head_dim} {v_head_dim}");
        let (rig, out) = Shape { heads, head_dim, v_head_dim, sinks: true, ..PLAIN }.rig(2);
        rig.check(&[out], &[&[1], &[260], &[1], &[9], &[1]], 2e-5);
    }
}

#[test]
fn queries_and_keys_made_on_the_way() {
    let shapes: &[(&str, Shape)] = &[
        ("norms", Shape { norms: Norms::Weights, ..PLAIN }),
        ("norms of queries", Shape { norms: Norms::Queries, ..PLAIN }),
        ("norms without weights", Shape { norms: Norms::Plain, ..PLAIN }),
        ("norms with weights of heads", Shape { norms: Norms::OfHeads, ..PLAIN }),
        ("norms of whole rows", Shape { norms: Norms::WholeRows, ..PLAIN }),
        ("cut", Shape { clamp: Some(0.4), ..PLAIN }),
        ("turned", Shape { rope: Some(Pairing::Halves), ..PLAIN }),
        ("turned in pairs", Shape { rope: Some(Pairing::Interleaved), ..PLAIN }),
    ];
    for (name, shape) in shapes {
        for together in [true, false] {
            println!("{name} {together}");
            let (rig, out) = Shape { together, ..*shape }.rig(3);
            rig.check(&[out], &[&[1, 0], &[2, 260], &[1, 0], &[0, 1], &[1, 1]], 2e-5);
        }
    }
    let all = Shape { norms: Norms::Weights, clamp: Some(1.1), rope: Some(Pairing::Halves), ..PLAIN };
    for shape in [all, Shape { norms: Norms::OfHeads, ..all }, Shape { norms: Norms::WholeRows, ..all }] {
        for together in [true, false] {
            let (rig, out) = Shape { together, ..shape }.rig(4);
            rig.check(&[out], &[&[1, 0], &[2, 260], &[1, 0], &[0, 1], &[1, 1]], 2e-5);
        }
    }
}

/// With as many buffers as every device has.
#[test]
fn buffers_of_the_floor_are_enough() {
    let all = Shape { sinks: true, rope: Some(Pairing::Halves), together: false, ..PLAIN };
    let gpu = seeing(Limits::FLOOR.binding);
    // What lies apart is brought together where it has to be.
    for (norms, clamp, together, token) in [
        (Norms::None, None, false, 3 + 2),
        (Norms::Weights, None, false, 3 + 2),
        (Norms::Plain, Some(0.4), false, 4 + 2),
        (Norms::WholeRows, Some(0.4), false, 3 + 2),
        (Norms::OfHeads, None, true, 2),
    ] {
        let (mut rig, out) = Shape { norms, clamp, together, ..all }.rig(10);
        rig.gpu = gpu.clone();
        assert_eq!(rig.check(&[out], &[&[1, 0], &[2, 260], &[1, 0], &[0, 1]], 2e-5).token, token);
    }
}

#[test]
fn blocks_over_a_past() {
    let shapes: &[(&str, Shape)] = &[
        ("sinks", Shape { sinks: true, ..PLAIN }),
        ("a short window", Shape { window: Some(50), sinks: true, ..PLAIN }),
        ("a long window, capped", Shape { window: Some(500), softcap: Some(1.5), head_dim: 128, ..PLAIN }),
        ("wide", Shape { heads: [2, 1], head_dim: 256, v_head_dim: 256, ..PLAIN }),
    ];
    for (name, shape) in shapes {
        println!("{name}");
        let (rig, out) = shape.rig(5);
        rig.check(&[out], &[&[300, 3], &[600, 0], &[1, 0], &[2, 65]], 2e-5);
    }
}

#[test]
fn caches_of_halves() {
    let shapes = [
        PLAIN,
        Shape { sinks: true, window: Some(300), norms: Norms::Weights, rope: Some(Pairing::Halves), ..PLAIN },
        Shape { head_dim: 128, v_head_dim: 128, together: false, ..PLAIN },
        Shape { head_dim: 10, v_head_dim: 6, ..PLAIN },
    ];
    for shape in shapes {
        let (mut rig, out) = shape.rig(6);
        rig.exact = false;
        rig.check(&[out], &[&[1, 0], &[300, 3], &[1, 0], &[600, 1], &[1, 0], &[0, 1]], 3e-3);
    }
}

/// A device whose kernels see so many bytes of a buffer.
fn seeing(binding: u64) -> Gpu {
    let limits = Limits { binding, ..Limits::FLOOR };
    let options = GpuOptions { software: true, limits: Some(limits), ..GpuOptions::default() };
    pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
}

/// A cache of several buffers, of 256 positions and of 64 each, tokens and blocks of rows around their borders.
#[test]
fn caches_that_are_cut() {
    let all = Shape { softcap: Some(3.0), window: Some(270), sinks: true, together: false, ..PLAIN };
    for (shape, binding, cuts) in [(PLAIN, 160 << 10, 4), (all, 160 << 10, 4), (PLAIN, 40 << 10, 13)] {
        let (mut rig, out) = shape.rig(7);
        rig.gpu = seeing(binding);
        let passes: &[&[usize]] =
            &[&[1, 0], &[62, 3], &[1, 0], &[1, 0], &[190, 255], &[1, 0], &[1, 1], &[1, 1], &[3, 300]];
        assert_eq!(rig.check(&[out], passes, 2e-5), Dispatches { token: 1 + cuts, block: 2 * cuts });
        rig.exact = false;
        rig.check(&[out], &[&[250, 140], &[300, 1], &[1, 0]], 3e-3);
    }
}

/// What no cut of a cache fits into is refused with numbers.
#[test]
fn caches_too_wide_to_be_cut() {
    let (rig, out) = PLAIN.rig(8);
    let limits = Limits { binding: 30 << 10, ..Limits::FLOOR };
    let error = rig.compiled(out, Regime::Token, limits, 1, 100).expect_err("too wide").to_string();
    assert!(error.contains("64 positions of a cache") && error.contains("32768"), "{error}");
}

/// Parts of results of long sequences are as many as a kernel may see: heads as large models with latent attention have them.
#[test]
fn parts_of_long_sequences() {
    let mut rig = Rig::new(9);
    let (n_heads, head_dim, v_head_dim) = (128, 576, 512);
    let [q, k, v] = rig.inputs([n_heads * head_dim, head_dim, v_head_dim]);
    let cache = rig.slot(Slot::KvCache { n_kv_heads: 1, head_dim, v_head_dim, window: None });
    let out = rig.buffer(n_heads * v_head_dim);
    let (n_kv_heads, scale, softcap, window, sinks) = (1, 0.1, None, None, None);
    let sizes =
        AttentionOp { q, k, v, cache, n_heads, n_kv_heads, head_dim, v_head_dim, scale, softcap, window, sinks, out };
    rig.op(Op::Attention(sizes));
    rig.exact = false;
    for (positions, cuts) in [(65_536, 1), (131_072, 2), (262_144, 3)] {
        for (regime, rows) in [(Regime::Token, 1), (Regime::Block, 128)] {
            let program = rig.compiled(out, regime, Limits::FLOOR, rows, positions).expect("a program");
            let largest = program.scratch.iter().max().copied().unwrap_or(0);
            assert!(largest <= Limits::FLOOR.binding, "{largest} bytes of {positions} positions");
            let found = program.rows.iter().filter(|row| row.slot.is_some() && !row.kernel.contains("cache")).count();
            assert_eq!(found, cuts, "{regime:?}, {positions} positions");
        }
    }
}
