//! Small ops on heads and rows.

use selkie_model::{Batch, Result, plan::Op};

use super::{CpuExecutor, op_error};
use crate::{
    Activations,
    kernels::matmul::{Product, matmul},
};

impl CpuExecutor {
    pub(super) fn heads(&mut self, op: &Op, batch: &Batch<'_>) -> Result<()> {
        let Some(&out) = op.outputs().first() else { return Ok(()) };
        let over = if let Op::ScaleRows { x, .. } = op { Some(*x) } else { None };
        self.write(out, over, batch, |e, out| match op {
            Op::ScaleRows { x, gate, .. } => {
                let width = e.plan.buffer(*x).width;
                for (row, gate) in out.chunks_exact_mut(width).zip(e.read(*gate, batch)) {
                    let factor = 1.0 / (1.0 + (-gate).exp());
                    row.iter_mut().for_each(|v| *v *= factor);
                }
                Ok(())
            }
            Op::JoinHeads { a, b, n_heads, .. } => {
                let [a_dim, b_dim] = [*a, *b].map(|id| e.plan.buffer(id).width / n_heads);
                let heads = e.read(*a, batch).chunks_exact(a_dim).zip(e.read(*b, batch).chunks_exact(b_dim));
                for (out, (a, b)) in out.chunks_exact_mut(a_dim + b_dim).zip(heads) {
                    out[..a_dim].copy_from_slice(a);
                    out[a_dim..].copy_from_slice(b);
                }
                Ok(())
            }
            Op::HeadLinear { x, weight, n_heads, .. } => e.head_linear(op, e.read(*x, batch), *weight, *n_heads, out),
            Op::RankExpand { x, weight, head_dim, .. } => {
                let weight = e.weights.vector(*weight);
                let each = weight.len() * head_dim / e.plan.buffer(*x).width;
                let heads = e.read(*x, batch).chunks_exact(*head_dim).zip(weight.chunks_exact(each).cycle());
                for (out, (x, w)) in out.chunks_exact_mut(each).zip(heads) {
                    for (out, w) in out.chunks_exact_mut(*head_dim).zip(w.chunks_exact(*head_dim)) {
                        out.iter_mut().zip(w.iter().zip(x)).for_each(|(o, (w, x))| *o = w * x);
                    }
                }
                Ok(())
            }
            Op::RankReduce { x, weight, head_dim, out: reduced } => {
                let weight = e.weights.vector(*weight);
                let each = weight.len() * head_dim / e.plan.buffer(*reduced).width;
                let heads = e.read(*x, batch).chunks_exact(each).zip(weight.chunks_exact(each).cycle());
                for (out, (x, w)) in out.chunks_exact_mut(*head_dim).zip(heads) {
                    out.fill(0.0);
                    for (x, w) in x.chunks_exact(*head_dim).zip(w.chunks_exact(*head_dim)) {
                        out.iter_mut().zip(w.iter().zip(x)).for_each(|(o, (w, x))| *o += w * x);
                    }
                }
                Ok(())
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
