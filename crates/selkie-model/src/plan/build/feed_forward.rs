//! Builders of what mixes channels.

use super::Builder;
use crate::{
    plan::{BufferId, Op},
    spec::{Activation, Dense, FeedForward, Mixture},
};

impl Builder<'_> {
    pub(super) fn feed_forward(&mut self, feed_forward: &FeedForward, n: BufferId) -> BufferId {
        match feed_forward {
            FeedForward::Dense(dense) => self.dense("y", dense, n),
            FeedForward::Mixture(mixture) => self.mixture(mixture, n),
            FeedForward::Shared(both) => {
                let y = self.mixture(&both.mixture, n);
                let mut shared = self.dense("shared", &both.shared, n);
                if let Some(gate) = both.gate {
                    let gate = self.linear("gate", n, gate);
                    let out = self.like("shared", shared);
                    self.push(Op::ScaleRows { x: shared, gate, out });
                    shared = out;
                }
                self.add("y", y, shared, 1.0)
            }
        }
    }

    pub(super) fn dense(&mut self, name: &'static str, d: &Dense, n: BufferId) -> BufferId {
        let h = match d.gate {
            Some(gate) => {
                let gate = self.linear("g", n, gate);
                let gate = self.scale("g", gate, d.gate_scale);
                let up = self.linear("u", n, d.up);
                self.glu("h", gate, up, d.activation)
            }
            None => {
                let up = self.linear("u", n, d.up);
                let out = self.like("h", up);
                self.push(Op::Activate { x: up, activation: d.activation, out });
                out
            }
        };
        self.linear(name, h, d.down)
    }

    pub(super) fn glu(&mut self, name: &'static str, gate: BufferId, up: BufferId, activation: Activation) -> BufferId {
        let out = self.like(name, gate);
        self.push(Op::Glu { gate, up, activation, out });
        out
    }

    fn mixture(&mut self, m: &Mixture, n: BufferId) -> BufferId {
        let out = self.like("y", n);
        self.push(Op::Mixture { x: n, mixture: *m, out });
        out
    }
}
