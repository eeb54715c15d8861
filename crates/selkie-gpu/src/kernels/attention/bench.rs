//! Heads of an 8B llama.

use selkie_model::plan::{AttentionOp, Op, Slot};

use crate::{BLOCK, Case, rig::Rig};

pub(crate) fn cases() -> Vec<Case> {
    let (n_heads, n_kv_heads, head_dim) = (32, 8, 128);
    let case = |name: String, rows: usize, past: usize| {
        let mut rig = Rig::new(1);
        let [q, k, v] = rig.inputs([n_heads, n_kv_heads, n_kv_heads].map(|heads| heads * head_dim));
        let cache = rig.slot(Slot::KvCache { n_kv_heads, head_dim, v_head_dim: head_dim, window: None });
        let out = rig.buffer(n_heads * head_dim);
        let (v_head_dim, scale, softcap, window, sinks) = (head_dim, 0.1, None, None, None);
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
        let bytes = (past + rows) * n_kv_heads * head_dim * 4 + rows * (2 * n_heads + 2 * n_kv_heads) * head_dim * 4;
        Case { rows, past, ..Case::new(name, rig, out, bytes) }
    };
    let tokens = [100, 4000].map(|past| case(format!("a token after {past}"), 1, past));
    tokens.into_iter().chain([case(format!("{BLOCK} rows"), BLOCK, 0)]).collect()
}
