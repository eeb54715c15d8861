use selkie_formats::DType;
use selkie_model::{
    plan::{AttentionOp, BufferId, Op, Slot},
    rope::{Pairing, RopeScaling, RopeSpec},
};

use crate::{
    Gpu, GpuOptions, Limits,
    kernels::{checks::Dispatches, rig::Rig},
};

#[test]
fn heads_side_by_side() {
    let mut rig = Rig::new(1);
    let (a, b) = (rig.input(3 * 20), rig.input(3 * 7));
    let out = rig.buffer(3 * 27);
    rig.op(Op::JoinHeads { a, b, n_heads: 3, out });
    rig.check(&[out], &[&[1], &[65, 2]], 1e-7);
}

#[test]
fn a_matrix_for_each_head() {
    for (dtype, heads, cols, rows) in [
        (DType::F32, 3, 20, 9),
        (DType::F16, 2, 512, 128),
        (DType::Q8_0, 3, 64, 70),
        (DType::Q4_0, 2, 128, 66),
        (DType::BF16, 16, 6, 5),
    ] {
        let mut rig = Rig::new(2);
        let x = rig.input(heads * cols);
        let weight = rig.matrix(dtype, &[heads, rows, cols]);
        let out = rig.buffer(heads * rows);
        rig.op(Op::HeadLinear { x, weight, n_heads: heads, out });
        let dispatches = rig.check(&[out], &[&[1], &[2], &[65, 3]], 1e-5);
        assert_eq!(dispatches, Dispatches { token: 1, block: 1 });
    }
}

/// Latent attention as models have it, from what its products give to the last product but one.
fn latent(seed: u64, heads: usize, rank: usize, nope: usize, turned: usize, pairing: Pairing) -> (Rig, BufferId) {
    let mut rig = Rig::new(seed);
    let inputs = rig.inputs([rank, turned, heads * nope, heads * turned]);
    let out = over(&mut rig, inputs, heads, DType::F16, pairing);
    (rig, out)
}

/// The same with compressed queries: these come of other products than keys and values do.
fn compressed(
    dtype: DType,
    heads: usize,
    rank: usize,
    nope: usize,
    turned: usize,
    pairing: Pairing,
) -> (Rig, BufferId) {
    let mut rig = Rig::new(3);
    let [c, k_rope] = rig.inputs([rank, turned]);
    let [q_nope, q_rope] = rig.inputs([heads * nope, heads * turned]);
    let out = over(&mut rig, [c, k_rope, q_nope, q_rope], heads, dtype, pairing);
    (rig, out)
}

fn over(rig: &mut Rig, inputs: [BufferId; 4], heads: usize, dtype: DType, pairing: Pairing) -> BufferId {
    let [c, k_rope, q_nope, q_rope] = inputs;
    let [rank, turned, nope] = [c, k_rope, q_nope].map(|id| rig.width(id));
    let nope = nope / heads;
    let v_dim = nope + 1;
    let rope = RopeSpec { n_dims: turned, theta: 1e4, pairing, scaling: RopeScaling::None, freq_factors: None };
    let rope = rig.rope(rope);
    let weight = Some(rig.vector_between(&[rank], 0.5, 1.5));
    let [normed, k_turned, q_turned] = [rank, turned, heads * turned].map(|width| rig.buffer(width));
    rig.op(Op::RmsNorm { x: c, weight, group: rank, eps: 1e-6, out: normed });
    rig.op(Op::Rope { x: q_rope, rope, head_dim: turned, out: q_turned });
    rig.op(Op::Rope { x: k_rope, rope, head_dim: turned, out: k_turned });
    let (head_dim, v_head_dim) = (rank + turned, rank);
    let widths = [heads * rank, heads * head_dim, head_dim, heads * rank, heads * v_dim];
    let [q_latent, q, k, a, out] = widths.map(|width| rig.buffer(width));
    let k_up = rig.matrix(dtype, &[heads, rank, nope]);
    rig.op(Op::HeadLinear { x: q_nope, weight: k_up, n_heads: heads, out: q_latent });
    rig.op(Op::JoinHeads { a: q_latent, b: q_turned, n_heads: heads, out: q });
    rig.op(Op::JoinHeads { a: normed, b: k_turned, n_heads: 1, out: k });
    let cache = rig.slot(Slot::KvCache { n_kv_heads: 1, head_dim, v_head_dim, window: None });
    rig.op(Op::Attention(AttentionOp {
        q,
        k,
        v: normed,
        cache,
        n_heads: heads,
        n_kv_heads: 1,
        head_dim,
        v_head_dim,
        scale: 0.3,
        softcap: None,
        window: None,
        sinks: None,
        out: a,
    }));
    let v_up = rig.matrix(DType::F16, &[heads, v_dim, rank]);
    rig.op(Op::HeadLinear { x: a, weight: v_up, n_heads: heads, out });
    out
}

/// Around the positions where attention's parts begin to be joined.
#[test]
fn latent_attention_is_three_dispatches_of_a_token() {
    for (heads, rank, nope, turned, pairing) in [(4, 32, 16, 8, Pairing::Interleaved), (3, 30, 7, 10, Pairing::Halves)]
    {
        let (rig, out) = latent(1, heads, rank, nope, turned, pairing);
        let dispatches = rig.check(&[out], &[&[1], &[1], &[252], &[1], &[1], &[1], &[1], &[300], &[1]], 2e-5);
        assert_eq!(dispatches.token, 3);
    }
}

#[test]
fn compressed_queries_are_two_dispatches_of_a_token() {
    let passes: &[&[usize]] = &[&[1, 0], &[254, 3], &[1, 0], &[1, 0], &[0, 1]];
    for (dtype, heads, rank, nope, turned, pairing) in [
        (DType::F32, 3, 30, 7, 10, Pairing::Halves),
        (DType::F16, 4, 32, 16, 8, Pairing::Interleaved),
        (DType::Q8_0, 2, 36, 64, 6, Pairing::Interleaved),
        (DType::IQ2_XS, 2, 64, 256, 16, Pairing::Halves),
    ] {
        println!("{dtype}");
        let (mut rig, out) = compressed(dtype, heads, rank, nope, turned, pairing);
        assert_eq!(rig.check(&[out], passes, 2e-5).token, 2);
        rig.exact = false;
        rig.check(&[out], passes, 3e-3);
    }
    // As many buffers as every device has are too few for that.
    let (mut rig, out) = compressed(DType::F16, 4, 32, 16, 8, Pairing::Halves);
    let options = GpuOptions { software: true, limits: Some(Limits::FLOOR), ..GpuOptions::default() };
    rig.gpu = pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe");
    assert_eq!(rig.check(&[out], passes, 2e-5).token, 3);
}

#[test]
fn latent_attention_of_real_sizes() {
    let (rig, out) = latent(2, 4, 512, 128, 64, Pairing::Halves);
    rig.check(&[out], &[&[1], &[40], &[1]], 2e-5);
    let (rig, out) = compressed(DType::Q8_0, 4, 512, 128, 64, Pairing::Halves);
    rig.check(&[out], &[&[1], &[40], &[1]], 2e-5);
}
