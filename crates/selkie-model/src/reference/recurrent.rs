//! The ops with a state: each sequence's rows go through the op with that sequence's slot.

use std::ops::Range;

use super::{
    Real, Reference, ops,
    state::{Caches, Entry},
};
use crate::{
    Batch, Error, Result, WeightId,
    plan::{BufferId, Op, SlotId},
};

impl<T: Real> Reference<T> {
    /// Runs one recurrent op.
    pub(super) fn recurrent(
        &self,
        op: &Op,
        batch: &Batch<'_>,
        caches: &mut [&mut Caches<T>],
    ) -> Result<(BufferId, Vec<T>)> {
        Ok(match op {
            Op::CausalConv { x, weight, bias, silu, state, out } => {
                let taps = self.weights.get(*weight).row_len();
                let (weight, bias) = (self.vector(*weight)?, bias.map(|id| self.vector(id)).transpose()?);
                let channels = self.plan.buffer(*x).width;
                let y = self.each(op, *state, batch, caches, |rows, planes| {
                    let x = self.rows_of(*x, &rows);
                    ops::causal_conv(x, &weight, bias.as_deref(), *silu, &mut planes[0], channels, taps)
                })?;
                (*out, y)
            }
            Op::SelectiveScan(o) => {
                let (a, d) = (self.vector(o.a)?, self.vector(o.d)?);
                let y = self.each(op, o.state, batch, caches, |rows, planes| {
                    let [x, dt, b, c] = [o.x, o.dt, o.b, o.c].map(|id| self.rows_of(id, &rows));
                    ops::selective_scan(x, dt, b, c, &a, &d, o.input, &mut planes[0])
                })?;
                (o.out, y)
            }
            Op::Ssd(o) => {
                let (a, d, dt_bias) = (self.vector(o.a)?, self.vector(o.d)?, self.vector(o.dt_bias)?);
                let y = self.each(op, o.state, batch, caches, |rows, planes| {
                    let (xbc, dt) = (self.rows_of(o.xbc, &rows), self.rows_of(o.dt, &rows));
                    ops::ssd(xbc, dt, &a, &d, Some(&dt_bias), &o.shape, &mut planes[0])
                })?;
                (o.out, y)
            }
            Op::Mamba3(o) => {
                let mimo_x = o.mimo_x.map(|id| self.vector(id)).transpose()?;
                let (dt_bias, d) = (self.vector(o.dt_bias)?, self.vector(o.d)?);
                let (b_bias, c_bias) = (self.vector(o.b_bias)?, self.vector(o.c_bias)?);
                let (dt_bias, b_bias, c_bias, d, mimo_x) = (&*dt_bias, &*b_bias, &*c_bias, &*d, mimo_x.as_deref());
                let params = ops::Mamba3Params { dt_bias, b_bias, c_bias, d, mimo_x };
                let y = self.each(op, o.state, batch, caches, |rows, planes| {
                    let [x, b, c, dt, a, trap, angle] =
                        [o.x, o.b, o.c, o.dt, o.a, o.trap, o.angle].map(|id| self.rows_of(id, &rows));
                    let [turned, s, k, last] = planes else { return vec![] };
                    let state = ops::Mamba3State { angle: turned, s, k, x: last };
                    ops::mamba3(x, b, c, dt, a, trap, angle, &params, &o.shape, state)
                })?;
                (o.out, y)
            }
            Op::Cssd(o) => {
                let (a_log, d, dt_bias) = (self.vector(o.a_log)?, self.vector(o.d)?, self.vector(o.dt_bias)?);
                let y = self.each(op, o.state, batch, caches, |rows, planes| {
                    let (xbc, dt) = (self.rows_of(o.xbc, &rows), self.rows_of(o.dt, &rows));
                    ops::cssd(xbc, dt, &a_log, &d, &dt_bias, &o.shape, &mut planes[0])
                })?;
                (o.out, y)
            }
            Op::DeltaRule(o) => {
                let (a_weight, dt_bias) = (self.vector(o.a_weight)?, self.vector(o.dt_bias)?);
                let y = self.each(op, o.state, batch, caches, |rows, planes| {
                    let [qkv, b, a] = [o.qkv, o.b, o.a].map(|id| self.rows_of(id, &rows));
                    ops::delta_rule(qkv, b, a, &a_weight, &dt_bias, &o.shape, &mut planes[0])
                })?;
                (o.out, y)
            }
            _ => return Err(Error::Op { op: op.name().into(), what: "has no state".into() }),
        })
    }

    pub(super) fn vector(&self, id: WeightId) -> Result<Vec<T>> {
        Ok(ops::widen(&self.weights.get(id).to_f32()?))
    }

    fn rows_of(&self, buffer: BufferId, rows: &Range<usize>) -> &[T] {
        let width = self.plan.buffer(buffer).width;
        &self.read(buffer)[rows.start * width..rows.end * width]
    }

    /// `step` over each sequence's rows, with its slot's arrays.
    fn each(
        &self,
        op: &Op,
        slot: SlotId,
        batch: &Batch<'_>,
        caches: &mut [&mut Caches<T>],
        mut step: impl FnMut(Range<usize>, &mut [Vec<T>]) -> Vec<T>,
    ) -> Result<Vec<T>> {
        let mut out = vec![];
        for (sequence, own) in batch.sequences.iter().zip(caches) {
            let Entry::Recurrent(state) = &mut own.slots[slot.0 as usize] else {
                return Err(Error::Op { op: op.name().into(), what: "its slot is a cache".into() });
            };
            out.extend(state.advance(sequence.rows.clone(), &mut step));
        }
        Ok(out)
    }
}
