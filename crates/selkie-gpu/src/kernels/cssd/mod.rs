//! MBJS's complex recurrence: the shaders are Mamba-2's, with states in pairs.

#[cfg(test)]
mod test;

use selkie_model::plan::CssdOp;

use crate::{Result, compile::Ctx, kernels::ssd::Recurrence};

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, op: &CssdOp) -> Result<()> {
    let shape = op.shape;
    let n = shape.n_heads;
    let recurrence = Recurrence {
        name: "cssd",
        xbc: op.xbc,
        dt: op.dt,
        dt_scale: 1.0,
        heads: ctx.vector_of(&[(Some(op.a_log), 2 * n), (Some(op.d), n), (Some(op.dt_bias), n)], false),
        n_heads: n,
        head_dim: shape.head_dim,
        n_groups: shape.n_groups,
        width: 2 * shape.d_state,
        complex: true,
        limits: [0.0, f32::MAX],
        scale_input: false,
        state: op.state,
        out: op.out,
    };
    recurrence.emit(ctx)
}
