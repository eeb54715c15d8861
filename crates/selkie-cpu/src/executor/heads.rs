//! Small ops on heads and rows.

use selkie_model::{Batch, Result, plan::Op};

use super::{CpuExecutor, op_error};
use crate::{
    Activations,
    kernels::{
        self,
        matmul::{Product, matmul},
    },
};

impl CpuExecutor {
    pub(super) fn heads(&mut self, op: &Op, batch: &Batch<'_>) -> Result<()> {
        let Some(&out) = op.outputs().first() else { return Ok(()) };
        let over = if let Op::ScaleRows { x, .. } = op { Some(*x) } else { None };
        self.write(out, over, batch, |e, out| match op {
            Op::ScaleRows { x, gate, .. } => {
                kernels::heads::scale_rows(&e.pool, out, e.read(*gate, batch), e.plan.buffer(*x).width)
                    .map_err(op_error(op))
            }
            Op::JoinHeads { a, b, n_heads, .. } => {
                let [a_dim, b_dim] = [*a, *b].map(|id| e.plan.buffer(id).width / n_heads);
                kernels::heads::join_heads(&e.pool, e.read(*a, batch), e.read(*b, batch), a_dim, b_dim, out)
                    .map_err(op_error(op))
            }
            Op::HeadLinear { x, weight, n_heads, .. } => e.head_linear(op, e.read(*x, batch), *weight, *n_heads, out),
            Op::RankExpand { x, weight, head_dim, .. } => {
                let heads = e.plan.buffer(*x).width / head_dim;
                kernels::heads::rank_expand(
                    &e.pool,
                    e.read(*x, batch),
                    e.weights.vector(*weight),
                    heads,
                    *head_dim,
                    out,
                )
                .map_err(op_error(op))
            }
            Op::RankReduce { x, weight, head_dim, out: reduced } => {
                let heads = e.plan.buffer(*reduced).width / head_dim;
                kernels::heads::rank_reduce(
                    &e.pool,
                    e.read(*x, batch),
                    e.weights.vector(*weight),
                    heads,
                    *head_dim,
                    out,
                )
                .map_err(op_error(op))
            }
            _ => Ok(()),
        })
    }

    /// Each head's rows, gathered, through its own matrix.
    fn head_linear(
        &self,
        op: &Op,
        x: &[f32],
        weight: selkie_model::WeightId,
        n_heads: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let stack = self.weights.stack(weight);
        let (mut gathered, mut made) = (vec![], vec![]);
        for (head, matrix) in stack.iter().enumerate() {
            let (input, width) = (matrix.inputs(), matrix.outputs());
            gathered.clear();
            x.chunks_exact(n_heads * input).for_each(|row| gathered.extend_from_slice(&row[head * input..][..input]));
            made.resize(gathered.len() / input * width, 0.0);
            let run = Activations::exact(&gathered, input)
                .and_then(|input| matmul(&self.pool, &input, &mut [Product::new(matrix, &mut made)]));
            run.map_err(op_error(op))?;
            for (out, made) in out.chunks_exact_mut(n_heads * width).zip(made.chunks_exact(width)) {
                out[head * width..][..width].copy_from_slice(made);
            }
        }
        Ok(())
    }
}
