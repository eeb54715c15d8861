//! Builders of what mixes positions. Each reads like the paper's block.

use super::Builder;
use crate::{
    plan::{AttentionOp, BufferId, CssdOp, DeltaRuleOp, Mamba3Op, Op, SelectiveScanOp, Slot, SsdOp},
    spec::{Activation, Attention, Cssd, DeltaNet, LatentAttention, Linear, Mamba1, Mamba2, Mamba3, Mixer, ShortConv},
};

impl Builder<'_> {
    pub(super) fn mixer(&mut self, mixer: &Mixer, n: BufferId) -> BufferId {
        match mixer {
            Mixer::Attention(a) => self.attention(a, n),
            Mixer::LatentAttention(a) => self.latent_attention(a, n),
            Mixer::Mamba1(m) => self.mamba1(m, n),
            Mixer::Mamba2(m) => self.mamba2(m, n),
            Mixer::Mamba3(m) => self.mamba3(m, n),
            Mixer::Cssd(m) => self.cssd(m, n),
            Mixer::ShortConv(m) => self.short_conv(m, n),
            Mixer::DeltaNet(m) => self.delta_net(m, n),
            Mixer::Parallel(branches) => {
                let mut sum = None;
                for branch in branches {
                    let input = self.scale("n", n, branch.input_scale);
                    let y = self.mixer(&branch.mixer, input);
                    sum = Some(match sum {
                        None => {
                            let y = self.scale("y", y, branch.output_scale);
                            // Each branch's result is `y`: this one has to be told from the next.
                            self.buffers[y.0 as usize].name = "sum";
                            y
                        }
                        Some(sum) => self.add("y", sum, y, branch.output_scale),
                    });
                }
                sum.unwrap_or(n)
            }
        }
    }

    pub(super) fn attention(&mut self, a: &Attention, n: BufferId) -> BufferId {
        let mut q = self.linear("q", n, a.q);
        let mut k = self.linear("k", n, a.k);
        let mut v = self.linear("v", n, a.v);
        let gate = a.gate.map(|gate| self.linear("gate", n, gate));
        if let Some([q_conv, k_conv, v_conv]) = a.conv {
            q = self.conv("q", q, q_conv);
            k = self.conv("k", k, k_conv);
            v = self.conv("v", v, v_conv);
        }
        if let Some(norm) = a.q_norm {
            q = self.norm("q", q, norm);
        }
        if let Some(norm) = a.k_norm {
            k = self.norm("k", k, norm);
        }
        if let Some(limit) = a.clip {
            [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, x)| self.clamp(name, x, limit));
        }
        if let Some(rope) = a.rope {
            q = self.rope("q", q, rope, a.head_dim);
            k = self.rope("k", k, rope, a.head_dim);
        }
        let (n_kv_heads, head_dim, window) = (a.n_kv_heads, a.head_dim, a.window);
        let cache = self.slot(Slot::KvCache { n_kv_heads, head_dim, v_head_dim: head_dim, window });
        let mut out = self.buffer("a", a.n_heads * a.head_dim);
        self.push(Op::Attention(AttentionOp {
            q,
            k,
            v,
            cache,
            n_heads: a.n_heads,
            n_kv_heads,
            head_dim,
            v_head_dim: head_dim,
            scale: a.scale,
            softcap: a.softcap,
            window,
            sinks: a.sinks,
            out,
        }));
        if let Some(gate) = gate {
            out = self.glu("a", gate, out, Activation::Sigmoid);
        }
        self.linear("y", out, a.o)
    }

    /// Queries meet the compressed rows themselves: `q · (up · c) = (upᵀ · q) · c`.
    fn latent_attention(&mut self, a: &LatentAttention, n: BufferId) -> BufferId {
        // Products of one input next to each other, so that executors can make them together.
        let q_down = a.q_down.map(|(down, norm)| (self.linear("q", n, down), norm));
        let c = self.linear("c", n, a.kv_down);
        let k_rope = self.linear("k_rope", n, a.k_rope);
        let q = match q_down {
            None => n,
            Some((q, norm)) => self.norm("q", q, norm),
        };
        let q_nope = self.linear("q_nope", q, a.q_nope);
        let q_rope = self.linear("q_rope", q, a.q_rope);
        let c = self.norm("c", c, a.kv_norm);
        let q_rope = self.rope("q_rope", q_rope, a.rope, a.rope_dim);
        let k_rope = self.rope("k_rope", k_rope, a.rope, a.rope_dim);
        let q_latent = self.head_linear("q_latent", q_nope, a.k_up, a.n_heads, a.rank);
        let q = self.join_heads("q", q_latent, q_rope, a.n_heads);
        let k = self.join_heads("k", c, k_rope, 1);
        let (head_dim, v_head_dim) = (a.rank + a.rope_dim, a.rank);
        let cache = self.slot(Slot::KvCache { n_kv_heads: 1, head_dim, v_head_dim, window: None });
        let out = self.buffer("a", a.n_heads * a.rank);
        self.push(Op::Attention(AttentionOp {
            q,
            k,
            v: c,
            cache,
            n_heads: a.n_heads,
            n_kv_heads: 1,
            head_dim,
            v_head_dim,
            scale: a.scale,
            softcap: None,
            window: None,
            sinks: None,
            out,
        }));
        let out = self.head_linear("a", out, a.v_up, a.n_heads, a.v_dim);
        self.linear("y", out, a.o)
    }

    fn rope(&mut self, name: &'static str, x: BufferId, rope: usize, head_dim: usize) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::Rope { x, rope, head_dim, out });
        out
    }

    fn clamp(&mut self, name: &'static str, x: BufferId, limit: f32) -> BufferId {
        let out = self.like(name, x);
        self.push(Op::Clamp { x, limit, out });
        out
    }

    fn join_heads(&mut self, name: &'static str, a: BufferId, b: BufferId, n_heads: usize) -> BufferId {
        let out = self.buffer(name, self.width(a) + self.width(b));
        self.push(Op::JoinHeads { a, b, n_heads, out });
        out
    }

    fn head_linear(
        &mut self,
        name: &'static str,
        x: BufferId,
        weight: crate::WeightId,
        n_heads: usize,
        head_out: usize,
    ) -> BufferId {
        let out = self.buffer(name, n_heads * head_out);
        self.push(Op::HeadLinear { x, weight, n_heads, out });
        out
    }

    fn mamba1(&mut self, m: &Mamba1, n: BufferId) -> BufferId {
        let x = self.linear("u", n, m.x);
        let z = self.linear("z", n, m.z);
        let x = self.conv("u", x, m.conv);
        let mut dt = self.linear("dt", x, m.dt);
        let mut b = self.linear("b", x, m.b);
        let mut c = self.linear("c", x, m.c);
        if let Some([dt_norm, b_norm, c_norm]) = m.norms {
            dt = self.norm("dt", dt, dt_norm);
            b = self.norm("b", b, b_norm);
            c = self.norm("c", c, c_norm);
        }
        let dt = self.linear("dt", dt, m.dt_up);
        let (channels, d_state) = (self.width(x), self.width(b));
        let state = self.slot(Slot::Scan { channels, d_state });
        let y = self.like("y", x);
        self.push(Op::SelectiveScan(SelectiveScanOp { x, dt, b, c, a: m.a, d: m.d, input: m.input, state, out: y }));
        let y = self.glu("y", z, y, Activation::Silu);
        self.linear("y", y, m.out)
    }

    fn mamba2(&mut self, m: &Mamba2, n: BufferId) -> BufferId {
        let z = m.z.map(|z| self.linear("z", n, z));
        let xbc = self.linear("xbc", n, m.xbc);
        let dt = self.linear("dt", n, m.dt);
        let z = z.map(|z| self.scale("z", z, m.z_scale));
        let dt = self.scale("dt", dt, m.dt_scale);
        let xbc = self.conv("xbc", xbc, m.conv);
        let state = self.slot(Slot::Ssd(m.shape));
        let mut y = self.buffer("y", m.shape.d_inner());
        let (a, d, dt_bias, shape) = (m.a, m.d, m.dt_bias, m.shape);
        self.push(Op::Ssd(SsdOp { xbc, dt, a, d, dt_bias, shape, state, out: y }));
        y = self.gated_norm(y, z, m.norm, m.norm_before_gate);
        self.linear("y", y, m.out)
    }

    /// `norm(silu(z) · y)`, or `silu(z) · norm(y)`; without what is not there.
    fn gated_norm(
        &mut self,
        mut y: BufferId,
        z: Option<BufferId>,
        norm: Option<crate::spec::Norm>,
        norm_first: bool,
    ) -> BufferId {
        if let Some(norm) = norm.filter(|_| norm_first) {
            y = self.norm("y", y, norm);
        }
        if let Some(z) = z {
            y = self.glu("y", z, y, Activation::Silu);
        }
        if let Some(norm) = norm.filter(|_| !norm_first) {
            y = self.norm("y", y, norm);
        }
        y
    }

    fn mamba3(&mut self, m: &Mamba3, n: BufferId) -> BufferId {
        let [mut z, x, b, c, dt, a, trap, angle] = self.linears(
            n,
            [
                ("z", m.z),
                ("u", m.x),
                ("b", m.b),
                ("c", m.c),
                ("dt", m.dt),
                ("a", m.a),
                ("trap", m.trap),
                ("angle", m.angle),
            ],
        );
        let b = self.norm("b", b, m.b_norm);
        let c = self.norm("c", c, m.c_norm);
        let state = self.slot(Slot::Mamba3(m.shape));
        let head_dim = m.shape.head_dim;
        let mut y = self.buffer("y", m.shape.rank * m.shape.d_inner());
        self.push(Op::Mamba3(Mamba3Op {
            x,
            b,
            c,
            dt,
            a,
            trap,
            angle,
            dt_bias: m.dt_bias,
            b_bias: m.b_bias,
            c_bias: m.c_bias,
            d: m.d,
            mimo_x: m.mimo.map(|mimo| mimo.x),
            shape: m.shape,
            state,
            out: y,
        }));
        if let Some(mimo) = m.mimo {
            let out = self.like("z", y);
            self.push(Op::RankExpand { x: z, weight: mimo.z, head_dim, out });
            z = out;
        }
        y = self.gated_norm(y, Some(z), m.norm, true);
        if let Some(mimo) = m.mimo {
            let out = self.like("y", x);
            self.push(Op::RankReduce { x: y, weight: mimo.o, head_dim, out });
            y = out;
        }
        self.linear("y", y, m.out)
    }

    fn linears<const K: usize>(&mut self, n: BufferId, list: [(&'static str, Linear); K]) -> [BufferId; K] {
        list.map(|(name, linear)| self.linear(name, n, linear))
    }

    fn cssd(&mut self, m: &Cssd, n: BufferId) -> BufferId {
        let xbc = self.linear("xbc", n, m.xbc);
        let dt = self.linear("dt", n, m.dt);
        let xbc = self.conv("xbc", xbc, m.conv);
        let state = self.slot(Slot::Cssd(m.shape));
        let y = self.buffer("y", m.shape.d_inner());
        let (a_log, d, dt_bias, shape) = (m.a_log, m.d, m.dt_bias, m.shape);
        self.push(Op::Cssd(CssdOp { xbc, dt, a_log, d, dt_bias, shape, state, out: y }));
        let y = self.norm("y", y, m.norm);
        self.linear("y", y, m.out)
    }

    fn short_conv(&mut self, m: &ShortConv, n: BufferId) -> BufferId {
        let [b, c, x] = self.linears(n, [("b", m.b), ("c", m.c), ("u", m.x)]);
        let x = self.glu("u", b, x, Activation::Identity);
        let x = self.conv("u", x, m.conv);
        let y = self.glu("y", c, x, Activation::Identity);
        self.linear("y", y, m.out)
    }

    fn delta_net(&mut self, m: &DeltaNet, n: BufferId) -> BufferId {
        let [qkv, z, b, a] = self.linears(n, [("qkv", m.qkv), ("z", m.z), ("b", m.b), ("a", m.a)]);
        let qkv = self.conv("qkv", qkv, m.conv);
        let state = self.slot(Slot::Delta(m.shape));
        let y = self.buffer("y", m.shape.d_inner());
        let (a_weight, dt_bias, shape) = (m.a_weight, m.dt_bias, m.shape);
        self.push(Op::DeltaRule(DeltaRuleOp { qkv, b, a, a_weight, dt_bias, shape, state, out: y }));
        let y = self.gated_norm(y, Some(z), Some(m.norm), true);
        self.linear("y", y, m.out)
    }
}
