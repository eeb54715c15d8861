//! The convolution against the reference.

use selkie_formats::DType;
use selkie_model::plan::{Op, Product, Slot};

use crate::kernels::rig::{Dispatches, Rig};

fn check(channels: usize, taps: usize, bias: bool, silu: bool, passes: &[&[usize]]) {
    let mut rig = Rig::new(taps as u64);
    let x = rig.input(channels);
    let weight = rig.vector(&[channels, taps]);
    let bias = bias.then(|| rig.vector(&[channels]));
    let state = rig.slot(Slot::Conv { channels, taps });
    let out = rig.buffer(channels);
    rig.op(Op::CausalConv { x, weight, bias, silu, state, out });
    assert_eq!(rig.check(&[out], passes, 1e-5), Dispatches { token: 1, block: 1 });
}

/// Sequences shorter than the window, of its length and longer, and tokens in between.
#[test]
fn windows_move_on() {
    let passes: &[&[usize]] = &[&[1, 3, 2], &[1, 0, 0], &[2, 1, 4], &[0, 1, 0], &[0, 3, 9], &[5, 1, 1]];
    check(130, 4, true, true, passes);
    check(64, 3, false, false, passes);
    check(10, 2, true, false, passes);
}

#[test]
fn blocks_of_rows() {
    for rows in [2, 63, 64, 65, 200, 600] {
        check(72, 4, true, true, &[&[rows], &[1], &[rows, 5]]);
    }
}

/// More taps than rows that an invocation would take otherwise.
#[test]
fn long_windows() {
    check(8, 14, true, true, &[&[5, 40], &[1, 0], &[20, 9]]);
    check(8, 1, true, true, &[&[5, 40], &[1, 0]]);
}

/// A token's is part of the product that it convolves, wherever that lies among others.
#[test]
fn with_products() {
    let types = [[DType::F32; 3], [DType::Q8_0; 3], [DType::Q8_0, DType::Q4_0, DType::F16]];
    for (types, (which, bias)) in types.into_iter().zip([(1, true), (0, false), (2, true)]) {
        let mut rig = Rig::new(which as u64);
        let x = rig.input(64);
        let widths = [21, 30, 5];
        let products = [0, 1, 2].map(|i| Product {
            weight: rig.matrix(types[i], &[widths[i], 64]),
            bias: bias.then(|| rig.vector(&[widths[i]])),
            out: rig.buffer(widths[i]),
        });
        rig.op(Op::Linears { x, products: products.to_vec() });
        let (channels, taps) = (widths[which], 4);
        let weight = rig.vector(&[channels, taps]);
        let bias = bias.then(|| rig.vector(&[channels]));
        let state = rig.slot(Slot::Conv { channels, taps });
        let out = rig.buffer(channels);
        rig.op(Op::CausalConv { x: products[which].out, weight, bias, silu: true, state, out });
        let others = (0..3).filter(|i| *i != which).map(|i| products[i].out);
        for out in others.chain([out]) {
            let dispatches = rig.check(&[out], &[&[1], &[1], &[2], &[1], &[1], &[1], &[1]], 1e-5);
            let matrices = if types[0] == types[1] { 1 } else { 3 };
            assert_eq!(dispatches, Dispatches { token: matrices, block: matrices + 1 });
        }
    }
}
